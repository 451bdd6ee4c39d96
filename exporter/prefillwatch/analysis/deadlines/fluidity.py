"""Token deadlines: does the answer flow at the pace that its reader was promised?

After Etalon's fluidity index (arXiv 2407.07000): a token is due one target gap D after the deadline of the token before
it. A token that comes early builds slack for the ones behind it; a late one costs every deadline that passed meanwhile
and clears the slack::

    on time (t <= slack + D):  slack += n D - t
    late:                      misses = floor((t - slack - D) / D) + 1,  slack = (n - 1) D

for a gap of t seconds that brought n tokens. A deadline that passed without a token is a deadline all the same, so the
ratio misses / deadlines stays between 0 and 1. An early stall hurts, a late one behind enough slack does not.
"""

from __future__ import annotations

import numpy as np

from prefillwatch.analysis.arrays import IntArray


class Fluidity:
    """Slack per token slot (index of the stream in the token books), in nanoseconds; O(1) state per stream."""

    __slots__ = ("_slack", "_target_ns")

    def __init__(self, target_gap_ns: int) -> None:
        if target_gap_ns <= 0:
            raise ValueError(f"target gap of {target_gap_ns} ns is not positive")
        self._target_ns = target_gap_ns
        self._slack: IntArray = np.zeros(64, np.int64)

    def begin(self, slot: int) -> None:
        """A first token came in this slot: its deadlines start now, without slack."""
        if slot >= len(self._slack):
            grown = np.zeros(max(2 * len(self._slack), slot + 1), np.int64)
            grown[: len(self._slack)] = self._slack
            self._slack = grown
        self._slack[slot] = 0

    def left(self, slot: int, silent_ns: int) -> tuple[int, int]:
        """The client left after so long a silence: the deadlines that came due in it, all of them missed."""
        late_by = silent_ns - int(self._slack[slot]) - self._target_ns
        missed = late_by // self._target_ns + 1 if late_by > 0 else 0
        return missed, missed

    def gaps(self, slots: IntArray, gaps_ns: IntArray, tokens: IntArray) -> tuple[IntArray, IntArray]:
        """Deadlines and misses of each gap. Gaps of one slot must stand next to each other, in order of time."""
        deadlines = tokens.copy()
        misses = np.zeros(len(slots), np.int64)
        late = self._take_early(slots, gaps_ns, tokens)
        for turn in _turns(slots, late):
            late_by = gaps_ns[turn] - self._slack[slots[turn]] - self._target_ns
            missed = np.where(late_by > 0, late_by // self._target_ns + 1, 0)
            misses[turn] = missed
            deadlines[turn] += np.maximum(missed - 1, 0)
            early = self._slack[slots[turn]] + tokens[turn] * self._target_ns - gaps_ns[turn]
            self._slack[slots[turn]] = np.where(late_by > 0, (tokens[turn] - 1) * self._target_ns, early)
        return deadlines, misses

    def _take_early(self, slots: IntArray, gaps_ns: IntArray, tokens: IntArray) -> IntArray:
        """Give the slots without a late token their new slack, all at once; the indices of the gaps of the others."""
        begins, lengths = _runs(slots)
        if not len(begins):
            return begins
        earned = tokens * self._target_ns - gaps_ns
        total = np.cumsum(earned)
        slack = total + np.repeat(self._slack[slots[begins]] - total[begins] + earned[begins], lengths)
        # As long as nothing was late before: a token is, when the slack without it would be below nothing.
        late = np.logical_or.reduceat(slack < (tokens - 1) * self._target_ns, begins)
        ends = (begins + lengths - 1)[~late]
        self._slack[slots[ends]] = slack[ends]
        return np.flatnonzero(np.repeat(late, lengths))


def _runs(slots: IntArray) -> tuple[IntArray, IntArray]:
    """Where the gaps of each slot begin, and how many there are."""
    first = np.ones(len(slots) + 1, np.bool_)
    np.not_equal(slots[1:], slots[:-1], out=first[1:-1])
    bounds = np.flatnonzero(first)
    return bounds[:-1], bounds[1:] - bounds[:-1]


def _turns(slots: IntArray, which: IntArray) -> list[IntArray]:
    """Of some gaps, index sets that each hold a slot at most once: the first of all slots, the second ones, and so
    on."""
    if not len(which):
        return []
    begins, lengths = _runs(slots[which])
    turn = np.arange(len(which)) - np.repeat(begins, lengths)
    return [which[turn == number] for number in range(int(lengths.max()))]
