"""What prompt tokens cost in step time, learned from busy times.

A busy time is a run of long steps; its cost is all their excess over clear steps, set against all the prompts it
served. Single prompts would teach nothing: of prompts whose first tokens coincide the later ones get almost no
service of their own. Once prompts are placed in steps with certainty, single steps teach more, the price of long
contexts above all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

FloatArray = npt.NDArray[np.float64]

FOREVER = 1 << 40

LOW_QUANTILE = 0.35
"""The cost is a lower quantile: whatever else happens in a busy time (a pause, a recomputation) only adds to it."""

ROUNDS = 8
SMALL_ERROR = 0.02
RUNS_PER_TERM = 4
"""So many busy times per term of the cost before the term is believed …"""
BETTER = 0.8
"""… and its error must be so much smaller with it than without."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """Excess time of a step in nanoseconds: per uncached prompt token, per such token and token of context before it
    (attention), and for carrying any prompt at all. All zero: nothing learned yet."""

    token_ns: float = 0.0
    context_ns: float = 0.0
    mixed_ns: float = 0.0

    @property
    def known(self) -> bool:
        return self.token_ns > 0

    def expect_ns(self, tokens: int, before: int = 0) -> float:
        """Excess time of a step for so many prompt tokens that follow ``before`` tokens in the KV cache."""
        if tokens <= 0:
            return 0.0
        return self.mixed_ns + tokens * (self.token_ns + self.context_ns * (before + tokens / 2))

    def scaled(self, factor: float) -> StepCost:
        return StepCost(factor * self.token_ns, factor * self.context_ns, factor * self.mixed_ns)

    def tokens_in(self, excess_ns: float) -> int:
        """Prompt tokens without context before them that take this long; without end while nothing is learned."""
        if not self.known:
            return FOREVER
        rest_ns = max(0.0, excess_ns - self.mixed_ns)
        if not self.context_ns:
            return round(rest_ns / self.token_ns)
        slope = self.token_ns / self.context_ns
        return round(math.sqrt(slope**2 + 2 * rest_ns / self.context_ns) - slope)


@dataclass(frozen=True, slots=True)
class Busy:
    """A busy time or a single step: steps that carried a prompt, uncached tokens, the same times their mean context,
    and the time beyond that of clear steps."""

    steps: int
    tokens: int
    token_contexts: float
    excess_ns: float


def fit(busy: Sequence[Busy]) -> StepCost:
    """Cost from busy times, as simple as the data allows."""
    used = [each for each in busy if each.excess_ns > 0 and each.tokens > 0]
    if not used:
        return StepCost()
    weights = np.sqrt(np.array([each.tokens for each in used], np.float64))
    terms = np.array([(each.tokens, each.token_contexts, each.steps) for each in used], np.float64)
    excess = np.array([each.excess_ns for each in used])
    chosen: tuple[int, ...] = (0,)
    factors, error = quantile_fit(terms[:, chosen], excess, weights)
    for more in ((0, 1), (0, 2), (0, 1, 2)):
        if len(used) >= RUNS_PER_TERM * len(more):
            candidate, its_error = quantile_fit(terms[:, more], excess, weights)
            if (candidate >= 0).all() and candidate[0] > 0 and its_error < BETTER * error:
                chosen, factors, error = more, candidate, its_error
    known = dict(zip(chosen, factors.tolist(), strict=True))
    return StepCost(known[0], known.get(1, 0.0), known.get(2, 0.0))


def quantile_fit(terms: FloatArray, values: FloatArray, weights: FloatArray) -> tuple[FloatArray, float]:
    """Linear factors for a low quantile of the values, relative errors counting; and the mean error.

    Iteratively reweighted least squares on the pinball loss.
    """
    rows = terms / values[:, None]
    pull = weights
    for _ in range(ROUNDS):
        root = np.sqrt(pull)
        factors: FloatArray = np.linalg.lstsq(rows * root[:, None], root, rcond=None)[0].astype(np.float64)
        rest = 1 - rows @ factors
        tilt = np.where(rest > 0, LOW_QUANTILE, 1 - LOW_QUANTILE) * weights
        pull = tilt / np.maximum(np.abs(rest), SMALL_ERROR)
    return factors, float(np.sum(tilt * np.abs(rest)) / weights.sum())
