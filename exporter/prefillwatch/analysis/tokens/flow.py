"""Which gaps may teach what a step takes: those of a stream that flows.

A delay must not teach the yardstick that it is held against, and neither must what follows it: tokens that were held
back come quicker than any engine makes them. So a gap that jumps up from the one before teaches nothing, and the quick
gaps right after a delay teach nothing, for a part of its length.

Example, in milliseconds: gaps of 20, 20, 2000, 1, 1, 1, 20, 20. The 2000 is a jump, and what comes in the 250 after it
teaches nothing; of the 20 that follow the first ones are lost with it, which costs little.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from prefillwatch.analysis.arrays import BoolArray, IntArray
from prefillwatch.analysis.tuning import DEFAULT, FlowRules

_SLOTS_AT_FIRST: Final = 64


class Flow:
    """The last gap of every stream, and the last delay of each."""

    __slots__ = ("_aftermath_end_ns", "_last_ns", "_long_ns", "_rules", "_until_ns")

    def __init__(self, rules: FlowRules = DEFAULT.flow) -> None:
        self._rules = rules
        self._last_ns: IntArray = np.zeros(_SLOTS_AT_FIRST, np.int64)  # length of the gap before; 0: none
        self._long_ns: IntArray = np.zeros(_SLOTS_AT_FIRST, np.int64)  # length of the last delay
        self._until_ns: IntArray = np.zeros(_SLOTS_AT_FIRST, np.int64)  # until when what follows it teaches nothing
        self._aftermath_end_ns = 0  # of any stream

    def begin(self, slot: int, first_ns: int, waited_ns: int) -> None:
        """A stream got its first token, which it had waited for so long."""
        while slot >= len(self._last_ns):
            for name in ("_last_ns", "_long_ns", "_until_ns"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
        self._last_ns[slot] = 0
        # Many wait for long and are then served as usual: only what is quicker than any engine was held back.
        self._long_ns[slot] = min(waited_ns, round(self._rules.jump * self._rules.quickest_ns))
        self._until_ns[slot] = until_ns = first_ns + aftermath_ns(waited_ns, self._rules)
        self._aftermath_end_ns = max(self._aftermath_end_ns, until_ns)

    def teaches(self, slot: IntArray, start_ns: IntArray, end_ns: IntArray) -> BoolArray:
        """For gaps in order of slot and time, each given once: whether it shows what a step takes."""
        length = end_ns - start_ns
        long = length >= self._rules.long_ns
        if not long.any() and (not len(slot) or start_ns.min() >= self._aftermath_end_ns):
            self._last_ns[slot] = length  # the last of each stream stays
            return ~long
        first = np.ones(len(slot), np.bool_)
        np.not_equal(slot[1:], slot[:-1], out=first[1:])
        before = self._last_ns[slot]
        before[1:] = np.where(first[1:], before[1:], length[:-1])
        teaches = ~long | ((before > 0) & (length <= self._rules.jump * before))
        # Each gap is held against the delay before it of its stream, from this batch or from earlier ones. Streams that
        # are slow by nature have nothing but delays, so all are looked at together.
        place = np.arange(len(slot))
        begin = np.maximum.accumulate(np.where(first, place, 0))
        delay = np.maximum.accumulate(np.where(long, place, -1))
        delay = np.concatenate(([-1], delay[:-1]))
        here = delay >= begin
        until_ns = end_ns + np.rint(np.minimum(length / self._rules.jump, self._rules.most_aftermath_ns)).astype(
            np.int64
        )
        delay_until_ns = np.where(here, until_ns[delay], self._until_ns[slot])
        delay_ns = np.where(here, length[delay], self._long_ns[slot])
        teaches &= (end_ns > delay_until_ns) | (length * self._rules.jump >= delay_ns)
        if long.any():
            self._long_ns[slot[long]] = length[long]  # the last of each stream stays
            self._until_ns[slot[long]] = until_ns[long]
            self._aftermath_end_ns = max(self._aftermath_end_ns, int(until_ns[long].max()))
        self._last_ns[slot] = length
        return teaches


def aftermath_ns(delay_ns: int, rules: FlowRules) -> int:
    """For how long what comes after a delay may have been held back by it."""
    return round(min(delay_ns / rules.jump, rules.most_aftermath_ns)) if delay_ns >= rules.long_ns else 0


class StepFlow:
    """The same of the engine's steps, one after another."""

    __slots__ = ("_last_ns", "_long_ns", "_made_before_ns", "_rules", "_until_ns")

    def __init__(self, rules: FlowRules = DEFAULT.flow) -> None:
        self._rules = rules
        self._made_before_ns = round(rules.jump * rules.quickest_ns)  # as the length of a delay
        self._last_ns = 0
        self._long_ns = 0
        self._until_ns = 0

    def woke(self, first_ns: int, waited_ns: int) -> None:
        """The first token after an idle time came, which had been waited for so long."""
        self._last_ns = 0
        self._long_ns = min(waited_ns, self._made_before_ns)
        self._until_ns = first_ns + aftermath_ns(waited_ns, self._rules)

    def teaches(self, start_ns: int, end_ns: int, *, carries: bool = False) -> bool:
        """``carries``: a prompt may have made the step long. Then tokens were held back only if they come quicker than
        any engine makes them."""
        length_ns, before_ns = end_ns - start_ns, self._last_ns
        self._last_ns = length_ns
        if length_ns >= self._rules.long_ns:
            self._long_ns = min(length_ns, self._made_before_ns) if carries else length_ns
            self._until_ns = end_ns + aftermath_ns(length_ns, self._rules)
            return carries or 0 < before_ns * self._rules.jump >= length_ns
        return end_ns > self._until_ns or length_ns * self._rules.jump >= self._long_ns
