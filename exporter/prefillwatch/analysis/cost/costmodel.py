"""Step time as a law: base + cost x uncached prompt tokens in the step, learned from what the server does anyway.

A robust straight line (least squares, reweighted after Huber) through the last steps with prompts and as many of the
last ones without: quiet times pin down the base, mixed load the slope. Pauses and recomputed contexts are outliers and
lose their weight. The fit quality is R squared under the same weights.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from prefillwatch.analysis.arrays import FloatArray, IntArray

_KEPT: Final = 512
#: Steps with prompts, and steps without, below which nothing is said.
FEWEST_MIXED: Final = 8
FEWEST_QUIET: Final = 8
_ROUNDS: Final = 12
#: Residuals beyond so many deviations lose weight; 1.4826 turns a median absolute deviation into a standard one.
_HUBER: Final = 1.5
_MAD: Final = 1.4826


class StepLaw(NamedTuple):
    """Seconds; ``steps`` is how many steps with prompts it is learned from, ``largest`` the most tokens in one."""

    base_s: float
    token_s: float
    fit: float
    steps: int
    largest: int

    def step_s(self, tokens: int) -> float:
        return self.base_s + self.token_s * tokens


class StepModel:
    """Learns the law of one model's steps."""

    def __init__(self) -> None:
        self._quiet = _Ring()
        self._mixed = _Ring()
        self._law: StepLaw | None = None
        self._dirty = False

    @property
    def steps(self) -> int:
        """Steps with prompts that are kept."""
        return len(self._mixed)

    def add(self, prefill_tokens: IntArray, seconds: FloatArray) -> None:
        mixed = prefill_tokens > 0
        if mixed.any():
            self._mixed.add(prefill_tokens[mixed], seconds[mixed])
        if not mixed.all():
            self._quiet.add(prefill_tokens[~mixed], seconds[~mixed])
        self._dirty = True

    def newest(self, most: int) -> list[tuple[int, float]]:
        """(prefill tokens, seconds) of the last steps, those without a prompt first."""
        return [*self._quiet.pairs(most), *self._mixed.pairs(most)]

    def law(self) -> StepLaw | None:
        """What is learned by now; None while there is too little, or where steps do not grow with their tokens."""
        if self._dirty:
            self._dirty = False
            self._law = self._learn()
        return self._law

    def _learn(self) -> StepLaw | None:
        if len(self._mixed) < FEWEST_MIXED or len(self._quiet) < FEWEST_QUIET:
            return None
        tokens, seconds = self._mixed.newest(_KEPT)
        _, quiet = self._quiet.newest(len(tokens))
        x = np.concatenate((tokens, np.zeros(len(quiet))))
        y = np.concatenate((seconds, quiet))
        base, slope, weights = huber_line(x, y)
        if slope <= 0 or base <= 0:
            return None
        return StepLaw(base, slope, _fit_quality(x, y, base, slope, weights), len(tokens), int(tokens.max()))


def huber_line(x: FloatArray, y: FloatArray) -> tuple[float, float, FloatArray]:
    """Intercept and slope of a robust straight line, and the weight that each point ended up with."""
    weights: FloatArray = np.ones(len(x))
    rows = np.stack((np.ones(len(x)), x), axis=1)
    base = slope = 0.0
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        (base, slope), *_ = np.linalg.lstsq(rows * root[:, None], y * root, rcond=None)
        rest = np.abs(y - base - slope * x)
        # Longer steps scatter by more seconds, so what counts is the error in parts of the step.
        relative = rest / np.maximum(base + slope * x, 1e-6)
        scale = max(_MAD * float(np.median(relative)), 1e-4)
        weights = np.minimum(1.0, _HUBER * scale / np.maximum(relative, 1e-12)) ** 2
    return float(base), float(slope), weights


def _fit_quality(x: FloatArray, y: FloatArray, base: float, slope: float, weights: FloatArray) -> float:
    mean = np.average(y, weights=weights)
    total = float((weights * (y - mean) ** 2).sum())
    rest = float((weights * (y - base - slope * x) ** 2).sum())
    return max(0.0, 1 - rest / total) if total > 0 else 0.0


class _Ring:
    """The newest so many steps."""

    def __init__(self) -> None:
        self._tokens: npt.NDArray[np.float64] = np.zeros(_KEPT)
        self._seconds: npt.NDArray[np.float64] = np.zeros(_KEPT)
        self._count = 0

    def __len__(self) -> int:
        return min(self._count, _KEPT)

    def add(self, tokens: IntArray, seconds: FloatArray) -> None:
        tokens, seconds = tokens[-_KEPT:], seconds[-_KEPT:]
        places = (self._count + np.arange(len(tokens))) % _KEPT
        self._tokens[places], self._seconds[places] = tokens, seconds
        self._count += len(tokens)

    def newest(self, most: int) -> tuple[FloatArray, FloatArray]:
        places = (self._count - 1 - np.arange(min(len(self), most))) % _KEPT
        return self._tokens[places], self._seconds[places]

    def pairs(self, most: int) -> list[tuple[int, float]]:
        """The newest, in order."""
        tokens, seconds = self.newest(most)
        return [(int(each), its) for each, its in zip(tokens[::-1], seconds[::-1].tolist(), strict=True)]
