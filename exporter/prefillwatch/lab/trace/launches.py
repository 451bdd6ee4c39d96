"""Annotations of the CPU moved to where the GPU did what was launched during them.

The CPU runs ahead of the GPU, so that the clock tells nothing; but each kernel names the call that launched it, and
that call lies within the annotation of its step.
"""

from __future__ import annotations

import itertools
from array import array
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from prefillwatch.lab.trace.annotation import Annotation
from prefillwatch.lab.trace.numbers import Numbers

#: Share of the kernels whose launch must lie within an annotated step; what is left chose tokens or copied.
_COVERED: Final = 0.8


@dataclass(slots=True)
class Launches:
    """Calls of the runtime by their correlation numbers."""

    correlations: array[int] = field(default_factory=lambda: array("q"))
    starts: array[int] = field(default_factory=lambda: array("q"))

    def add(self, correlation: int, start_ns: int) -> None:
        self.correlations.append(correlation)
        self.starts.append(start_ns)

    def of(self, correlations: Numbers) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """When each was launched, and for which that is known."""
        known = np.array(self.correlations, np.int64)
        if not len(known):
            return np.zeros(len(correlations), np.int64), np.zeros(len(correlations), np.bool_)
        order = np.argsort(known, kind="stable")
        known, starts = known[order], np.array(self.starts, np.int64)[order]
        at = np.minimum(np.searchsorted(known, correlations), len(known) - 1)
        return starts[at], (known[at] == correlations) & (correlations > 0)


def moved_by_launches(
    annotations: list[Annotation],
    launches: Launches,
    correlations: Numbers,
    starts: Numbers,
    ends: Numbers,
    lanes: npt.NDArray[np.int32],
) -> list[Annotation] | None:
    """``annotations`` in order of time, each from its first kernel to its last; None where launches do not tell.

    Only the stream that did most counts: copies for the next step run beside this one on others.
    """
    lane_times = np.bincount(lanes, weights=ends - starts)
    main = lanes == int(lane_times.argmax())
    times, known = launches.of(correlations[main])
    begins = np.array([step.start_ns for step in annotations], np.int64)
    at = np.searchsorted(begins, times, side="right") - 1
    until = np.array([step.end_ns for step in annotations], np.int64)
    inside = known & (at >= 0) & (times <= until[np.maximum(at, 0)])
    if not len(inside) or inside.sum() < _COVERED * len(inside):
        return None
    own, main_starts, main_ends = at[inside], starts[main][inside], ends[main][inside]
    firsts = np.full(len(annotations), np.iinfo(np.int64).max)
    lasts = np.full(len(annotations), np.iinfo(np.int64).min)
    np.minimum.at(firsts, own, main_starts)
    np.maximum.at(lasts, own, main_ends)
    moved = [
        replace(step, start_ns=first, end_ns=last)
        for step, first, last in zip(annotations, firsts.tolist(), lasts.tolist(), strict=True)
        if first < last
    ]
    return moved if all(a.end_ns <= b.start_ns for a, b in itertools.pairwise(moved)) else None
