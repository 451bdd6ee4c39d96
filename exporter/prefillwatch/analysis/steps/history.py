"""Which prompts were in service when: the steps of the last minutes in arrays, to be asked for many gaps at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prefillwatch.analysis.arrays import BoolArray, IntArray

#: Starts, ends and largest prompts of steps.
Columns = tuple[IntArray, IntArray, IntArray]


@dataclass(frozen=True, slots=True, eq=False)
class Overlap:
    """One entry per gap."""

    #: Size of the largest prompt in service during the gap; 0: none.
    tokens: IntArray
    #: Whether the answer may still change.
    provisional: BoolArray


class StepHistory:
    """Ends of steps and the largest prompt in each, oldest first, in arrays that grow behind and are cut in front."""

    __slots__ = ("_begin", "_count", "_ends", "_largest", "_starts")

    def __init__(self) -> None:
        self._starts: IntArray = np.empty(1024, np.int64)
        self._ends: IntArray = np.empty(1024, np.int64)
        self._largest: IntArray = np.empty(1024, np.int64)
        self._begin = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count - self._begin

    def append(self, start_ns: int, end_ns: int, largest: int) -> None:
        if self._count == len(self._ends):
            self._make_room()
        self._starts[self._count] = start_ns
        self._ends[self._count] = end_ns
        self._largest[self._count] = largest
        self._count += 1

    def forget(self, before_ns: int, keep: int) -> None:
        """Drop the steps that ended before this moment, and all but the last ``keep``."""
        ends = self._ends[self._begin : self._count]
        self._begin += max(int(ends.searchsorted(before_ns)), len(ends) - keep, 0)

    def _make_room(self) -> None:
        kept = slice(self._begin, self._count)
        size = max(1024, 2 * len(self))
        for name in ("_starts", "_ends", "_largest"):
            array = np.empty(size, np.int64)
            array[: len(self)] = getattr(self, name)[kept]
            setattr(self, name, array)
        self._begin, self._count = 0, len(self)

    def columns(self) -> Columns:
        kept = slice(self._begin, self._count)
        return self._starts[kept], self._ends[kept], self._largest[kept]


def joined(first: Columns, then: Columns) -> Columns:
    """The steps of both, one after the other."""
    return (
        np.concatenate((first[0], then[0])),
        np.concatenate((first[1], then[1])),
        np.concatenate((first[2], then[2])),
    )


def largest_during(starts_ns: IntArray, ends_ns: IntArray, steps: Columns) -> IntArray:
    """Largest prompt of the steps that each gap covers.

    A gap covers the steps that ended in it: the reads at its two ends come after the ends of their steps, by a delay
    that is shorter than any step that matters. A gap in which no step ended lies inside one, and that one counts.

    Example: steps end at 10, 20, 320 and 330, the third with a prompt of 2,500 tokens. A gap from 21 to 321 covers the
    third step: 2,500. One from 11 to 21 covers the second: 0. One from 100 to 300 lies inside the third: 2,500.
    """
    # Of the steps of minutes only the last few are asked for, and most often there was no prompt in them.
    recent = int(steps[1].searchsorted(starts_ns.min(initial=np.iinfo(np.int64).max), "right"))
    step_starts, step_ends, largest = (column[recent:] for column in steps)
    if not largest.any():
        return np.zeros(len(starts_ns), np.int64)
    low = step_ends.searchsorted(starts_ns, "right")
    high = np.maximum(step_ends.searchsorted(ends_ns, "right"), low + 1)
    inside = low < len(step_ends)
    inside[inside] = step_starts[low[inside]] < ends_ns[inside]
    bounds = np.stack((low, high), axis=1).ravel()
    padded = np.append(largest, np.zeros(max(0, int(bounds.max(initial=0)) + 1 - len(largest)), np.int64))
    found = np.maximum.reduceat(padded, bounds)[::2]
    return np.where(inside, found, 0)
