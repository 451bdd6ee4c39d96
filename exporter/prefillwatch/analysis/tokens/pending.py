"""Gaps that wait for their verdict.

Which prompt was in service during a gap is known in two stages. Once the engine step that ended the gap is closed, it
is known whether a prompt rode in it; whose it was may only show when the waiting requests get their first tokens. So a
gap waits twice: a moment for its population, and for its bucket until the prefill timeline calls it final.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prefillwatch.analysis.arrays import BoolArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Gaps:
    """Parallel arrays: one entry per gap. Times in monotonic nanoseconds, events: token events that ended the gap,
    teaches: whether its stream flowed (`flow`)."""

    slot: IntArray
    model: IntArray
    start_ns: IntArray
    end_ns: IntArray
    events: IntArray
    teaches: BoolArray

    def __len__(self) -> int:
        return len(self.slot)

    def pick(self, which: npt.NDArray[np.bool_] | slice) -> Gaps:
        slot, model, start_ns, end_ns, events = (column[which] for column in self.columns())
        return Gaps(slot, model, start_ns, end_ns, events, self.teaches[which])

    def columns(self) -> tuple[IntArray, ...]:
        """Those of numbers."""
        return self.slot, self.model, self.start_ns, self.end_ns, self.events


def join(parts: list[Gaps]) -> Gaps:
    columns = (np.concatenate(each) for each in zip(*(part.columns() for part in parts), strict=True))
    slot, model, start_ns, end_ns, events = columns
    return Gaps(slot, model, start_ns, end_ns, events, np.concatenate([part.teaches for part in parts]))


class PendingGaps:
    """Holds gaps until a moment has passed; at most ``limit`` of them, the oldest are given out early."""

    __slots__ = ("_chunks", "_count", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._chunks: deque[Gaps] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, gaps: Gaps) -> None:
        if len(gaps):
            self._chunks.append(gaps)
            self._count += len(gaps)

    def due(self, until_ns: int) -> Gaps | None:
        """Take the gaps that ended at or before this moment, and those beyond the limit; None when there are none."""
        parts: list[Gaps] = []
        kept: deque[Gaps] = deque()
        surplus = self._count - self._limit
        while self._chunks:
            chunk = self._chunks.popleft()
            passed = chunk.end_ns <= until_ns
            if surplus > 0 or passed.all():
                surplus -= len(chunk)
                parts.append(chunk)
                continue
            kept.append(chunk.pick(~passed) if passed.any() else chunk)
            if passed.any():
                parts.append(chunk.pick(passed))
            elif chunk.start_ns.min() > until_ns:
                break  # chunks come in order of time: nothing behind this one has ended either
        self._chunks = kept + self._chunks
        taken = sum(len(part) for part in parts)
        self._count -= taken
        return join(parts) if parts else None
