"""Dose and response: what a prompt of a size adds to the gaps of others, and what its tokens cost. Pure.

Two things are told apart. The *added gap* is the longest gap beyond the baseline, which a reader sees as a freeze; with
chunked prefill it stops growing where the prompt fills the step budget. The *work* of a prompt is all the time by which
it delays a victim, in one freeze or in many slow beats; it keeps growing, whatever the scheduler does.

The cost is fitted to the work. Its formula is that of `analysis.cost.StepLaw`, which the sidecar learns from traffic:
so much per uncached token, more for each token of context before it (attention), and something for any prompt at all.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from prefillwatch.analysis.arrays import FloatArray
from prefillwatch.analysis.tuning import DEFAULT
from prefillwatch.lab.probe.figures import RunFigures

#: With fewer sizes than this, no formula can be told from another.
FEWEST_SIZES: Final = 3
#: Terms of a formula: cost per token, cost of context, cost of any prompt. Simple combinations first.
_TERMS: Final = ([0], [0, 1], [0, 2], [0, 1, 2])
#: If a prompt twice as long makes the added gap grow by less than this, the gap has stopped growing. Not 1: the later
#: chunks of a long prompt cost more, by the context before them.
_FLAT: Final = 1.5


@dataclass(frozen=True, slots=True)
class Point:
    """One size of prompt; medians over repeats, with the lowest and highest in brackets."""

    #: Uncached ones, by the server's count where it gives one.
    prompt_tokens: float
    added_gap_seconds: float
    added_gap_range: tuple[float, float]
    #: Per prompt.
    work_seconds: float
    work_range: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Cost:
    """Work of a prompt of n uncached tokens: base + n x (token + context x n / 2), since n / 2 tokens stand before one
    on average. `fit` is R squared, None where there are too few sizes to fit anything but a price per token."""

    token_seconds: float
    #: Per token and token of context before it.
    context_seconds: float = 0.0
    base_seconds: float = 0.0
    fit: float | None = None

    def work_seconds(self, tokens: float) -> float:
        return self.base_seconds + tokens * (self.token_seconds + self.context_seconds * tokens / 2)

    def tokens_for(self, work_seconds: float) -> int:
        """How many prompt tokens make this much work."""
        rest = max(0.0, work_seconds - self.base_seconds)
        if not self.context_seconds:
            return round(rest / self.token_seconds)
        slope = self.token_seconds / self.context_seconds
        return round(math.sqrt(slope**2 + 2 * rest / self.context_seconds) - slope)


@dataclass(frozen=True, slots=True)
class Response:
    """Over all sizes, smallest first. `cost` is None where work does not grow with tokens."""

    points: tuple[Point, ...]
    cost: Cost | None
    #: The smallest size beyond which a longer prompt makes more work, but no longer gap: the prompt comes in chunks.
    levels_off_at: int | None = None


def respond(runs: Sequence[RunFigures]) -> Response:
    """From all runs of a probe in which every prompt got its first token."""
    usable = [run for run in runs if run.work_seconds is not None]
    sizes = sorted({run.prompt_tokens for run in usable})
    points = tuple(_point([run for run in usable if run.prompt_tokens == size]) for size in sizes)
    return Response(points, _cost(points), _levels_off(points))


def _tokens(run: RunFigures) -> float:
    """Uncached tokens per prompt."""
    return statistics.fmean(prompt.prompt_tokens - (prompt.cached_tokens or 0) for prompt in run.prompts)


def _point(runs: Sequence[RunFigures]) -> Point:
    gaps = [run.worst_added_seconds for run in runs]
    works = [run.work_seconds or 0.0 for run in runs]
    return Point(
        prompt_tokens=statistics.median(_tokens(run) for run in runs),
        added_gap_seconds=statistics.median(gaps),
        added_gap_range=(min(gaps), max(gaps)),
        work_seconds=statistics.median(works),
        work_range=(min(works), max(works)),
    )


def _cost(points: Sequence[Point]) -> Cost | None:
    """The simplest formula that describes the work nearly as well as any. Least squares of relative errors, because the
    work of a short prompt is known as well as that of a long one."""
    tokens = np.array([point.prompt_tokens for point in points])
    work = np.array([point.work_seconds for point in points])
    if len(points) == 0 or (work <= 0).any():
        return None
    terms = np.stack((tokens, tokens**2 / 2, np.ones(len(tokens))), axis=1) / work[:, None]
    best: FloatArray | None = None
    error = math.inf
    for chosen in _TERMS:
        if len(chosen) == 1 or len(chosen) < len(points):
            factors, its_error = _least_squares(terms, chosen)
            if (factors >= 0).all() and factors[0] > 0 and (best is None or its_error < DEFAULT.cost.better * error):
                best, error = factors, its_error
    # If the longest prompts are no more work than the shortest, work does not depend on tokens.
    if best is None or (len(points) > 1 and points[-1].work_seconds <= points[0].work_seconds):
        return None
    token, context, base = best.tolist()
    return Cost(token, context, base, _r_squared(terms @ best * work, work) if len(points) >= FEWEST_SIZES else None)


def _least_squares(terms: FloatArray, chosen: list[int]) -> tuple[FloatArray, float]:
    """Factors of the chosen terms, the others 0, and the sum of squared relative errors."""
    factors = np.zeros(terms.shape[1])
    factors[chosen] = np.linalg.lstsq(terms[:, chosen], np.ones(len(terms)), rcond=None)[0]
    return factors, float(((terms @ factors - 1) ** 2).sum())


def _r_squared(fitted: FloatArray, values: FloatArray) -> float:
    total = float(((values - values.mean()) ** 2).sum())
    return max(0.0, 1 - float(((values - fitted) ** 2).sum()) / total) if total > 0 else 0.0


def _levels_off(points: Sequence[Point]) -> int | None:
    """Searched from the longest prompts down, and believed only where the work went on growing."""
    found = None
    for shorter, longer in reversed(list(itertools.pairwise(points))):
        wanted = longer.prompt_tokens / shorter.prompt_tokens
        grown = longer.added_gap_seconds / max(shorter.added_gap_seconds, 1e-9)
        if wanted < 1.5 or grown > 1 + (_FLAT - 1) * (wanted - 1) or longer.work_seconds < _FLAT * shorter.work_seconds:
            break
        found = round(shorter.prompt_tokens)
    return found
