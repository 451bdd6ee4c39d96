"""The reads of the last minute, for the picture of an incident. Nothing is done per token: the arrays of each batch are
kept as they were worked through."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from prefillwatch.analysis.arrays import IntArray
from prefillwatch.units import NS

#: A verdict is final half a minute after a delay at the latest.
_KEPT_NS: Final = 60 * NS
#: 3 MiB.
MOST_READS: Final = 200_000


class ReadLog:
    """By slot: which sequence had it when is for who asks to know."""

    def __init__(self) -> None:
        self._batches: deque[tuple[IntArray, IntArray]] = deque()
        self._count = 0

    def add(self, slots: IntArray, times_ns: IntArray) -> None:
        """Reads of one batch, in any order, none of them long before those of the batch before."""
        if not len(slots):
            return
        self._batches.append((slots, times_ns))
        self._count += len(slots)
        newest_ns = int(times_ns.max())
        while self._count > MOST_READS or int(self._batches[0][1].max()) < newest_ns - _KEPT_NS:
            self._count -= len(self._batches.popleft()[0])

    def of(self, slot: int, start_ns: int, end_ns: int) -> list[int]:
        """Its reads between these moments, in order."""
        found: list[int] = []
        for slots, times_ns in self._batches:
            mine = times_ns[slots == slot]
            found += mine[(mine >= start_ns) & (mine <= end_ns)].tolist()
        return sorted(found)

    def between(self, start_ns: int, end_ns: int) -> ReadLog:
        """Only the batches that have reads of this time, for many questions about it."""
        part = ReadLog()
        part._batches.extend(batch for batch in self._batches if np.any((batch[1] >= start_ns) & (batch[1] <= end_ns)))
        return part
