"""Dose and response: what a prompt of a size adds to the gaps of others, and what its tokens cost. Pure.

Two things are told apart. The *added gap* is the longest gap beyond the baseline, which a reader sees as a freeze; with
chunked prefill it stops growing where the prompt fills the step budget. The *work* of a prompt is all the time by which
it delays a victim, in one freeze or in many slow beats; it keeps growing, whatever the scheduler does. The cost is the
slope of the work over the prompt's tokens: the robust line of `analysis.costmodel.huber_line` through all runs, its
quality R squared under the same weights.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from prefillwatch.analysis.costmodel import huber_line
from prefillwatch.lab.probe.figures import RunFigures

#: Sizes below which a line through them says nothing about whether there is one.
FEWEST_SIZES: Final = 3
#: Growth of the added gap by a prompt twice as long, below which it has all but stopped growing. Not 1: later chunks of
#: a long prompt cost more, by the context before them.
_FLAT: Final = 1.5


@dataclass(frozen=True, slots=True)
class Point:
    """One size of prompt; medians over repeats, with the lowest and highest in brackets."""

    prompt_tokens: float
    """Uncached ones, by the server's count where it tells."""
    added_gap_seconds: float
    added_gap_range: tuple[float, float]
    work_seconds: float
    """Per prompt."""
    work_range: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Cost:
    """Work of a prompt = `base_seconds` + `token_seconds` per uncached token. `fit` is None with too few sizes for a
    line; then the base is 0 by assumption."""

    token_seconds: float
    base_seconds: float = 0.0
    fit: float | None = None

    def work_seconds(self, tokens: float) -> float:
        return max(0.0, self.base_seconds + self.token_seconds * tokens)

    def tokens_for(self, work_seconds: float) -> int:
        """Prompt tokens that are so much work."""
        return round(max(0.0, work_seconds - self.base_seconds) / self.token_seconds)


@dataclass(frozen=True, slots=True)
class Response:
    """Over all sizes, smallest first. `cost` is None where work does not grow with tokens."""

    points: tuple[Point, ...]
    cost: Cost | None
    levels_off_at: int | None = None
    """The smallest size from which on a longer prompt no longer makes a longer gap, though more work: chunks."""


def respond(runs: Sequence[RunFigures]) -> Response:
    """From all runs of a probe that got their prompts taken in."""
    usable = [run for run in runs if run.work_seconds is not None]
    sizes = sorted({run.prompt_tokens for run in usable})
    points = tuple(_point([run for run in usable if run.prompt_tokens == size]) for size in sizes)
    return Response(points, _cost(usable, len(sizes)), _levels_off(points))


def _tokens(run: RunFigures) -> float:
    """Uncached tokens per prompt."""
    return statistics.fmean(prompt.prompt_tokens - (prompt.cached_tokens or 0) for prompt in run.prompts)


def _work(run: RunFigures) -> float:
    return run.work_seconds or 0.0


def _point(runs: Sequence[RunFigures]) -> Point:
    gaps = [run.worst_added_seconds for run in runs]
    works = [_work(run) for run in runs]
    return Point(
        prompt_tokens=statistics.median(_tokens(run) for run in runs),
        added_gap_seconds=statistics.median(gaps),
        added_gap_range=(min(gaps), max(gaps)),
        work_seconds=statistics.median(works),
        work_range=(min(works), max(works)),
    )


def _cost(runs: Sequence[RunFigures], sizes: int) -> Cost | None:
    if not runs:
        return None
    tokens = np.array([_tokens(run) for run in runs])
    work = np.array([_work(run) for run in runs])
    if sizes < FEWEST_SIZES:
        slope = float(work.sum() / max(tokens.sum(), 1.0))
        return Cost(slope) if slope > 0 else None
    base, slope, weights = huber_line(tokens, work)
    if slope <= 0:
        return None
    mean = np.average(work, weights=weights)
    total = float((weights * (work - mean) ** 2).sum())
    rest = float((weights * (work - base - slope * tokens) ** 2).sum())
    return Cost(slope, base, max(0.0, 1 - rest / total) if total else None)


def _levels_off(points: Sequence[Point]) -> int | None:
    """Looked for from the longest prompts down, and believed only where the work went on growing."""
    found = None
    for shorter, longer in reversed(list(itertools.pairwise(points))):
        wanted = longer.prompt_tokens / shorter.prompt_tokens
        grown = longer.added_gap_seconds / max(shorter.added_gap_seconds, 1e-9)
        if wanted < 1.5 or grown > 1 + (_FLAT - 1) * (wanted - 1) or longer.work_seconds < _FLAT * shorter.work_seconds:
            break
        found = round(shorter.prompt_tokens)
    return found
