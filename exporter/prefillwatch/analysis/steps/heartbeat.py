"""The engine's step clock, read off the wire.

A step gives every decoding stream at most one read. So the reads of all decoding streams together are the beat of the
engine: a stream that reads again opens a new step, and reads belong to one step as long as they come within most of a
clear step of its first. After a long step delivery spreads wider than a fast clear step takes; a stream that is still
owed its read of the long step does not open a step of its own with it.

Example, in milliseconds, with clear steps of 10: streams a, b and c read at 100, then a at 400 and b at 401, then a at
410, c at 410.5, b at 411 and c at 411.5. The first step is from 100 to 400, and c is still owed its read of it. The
second is from 400 to 410: the read of c at 410.5 is the one it was owed, the one at 411.5 belongs to the second step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from prefillwatch.analysis.arrays import IntArray
from prefillwatch.analysis.cost import ClearStep
from prefillwatch.analysis.tuning import DEFAULT, StepClock

#: Steps whose streams are counted for the pace of one stream.
STEPS_COUNTED: Final = 64
#: Streams read in steps as long as a step has this part of those that decode: some have just joined, or left.
IN_STEPS: Final = 0.5
#: In place of the index of a stream's last read: it read in no batch of late, or in the open step, one batch ago.
NEVER_READ: Final = -2
READ_IN_OPEN_STEP: Final = -1


@dataclass(frozen=True, slots=True)
class Step:
    """One engine step as seen from the wire. Times are monotonic nanoseconds.

    ``start_ns`` is the end of the step before it, or the first token that ended an idle time. ``end_ns`` is the first
    read of the step, the one nearest to the moment the engine had its tokens. ``streams`` decoders read.
    """

    start_ns: int
    end_ns: int
    streams: int

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


class Heartbeat:
    """Cuts the reads of all decoding streams into engine steps.

    ``clear`` is what is known of clear steps. The heartbeat only asks: the timeline, which knows when requests wait,
    teaches it (`PrefillTimeline.clear`).
    """

    __slots__ = (
        "_after_a_long_step",
        "_begun_ns",
        "_clear",
        "_decoding",
        "_leaving",
        "_mark",
        "_most_of_a_step",
        "_owed",
        "_owed_until_ns",
        "_previous_end_ns",
        "_serial",
        "_sizes",
        "_streams",
        "_wakes",
        "_widest_spread_ns",
        "_window_ns",
        "closed_ns",
    )

    def __init__(self, clear: ClearStep, clock: StepClock = DEFAULT.clock) -> None:
        self._clear = clear
        self._most_of_a_step = clock.most_of_a_step
        self._after_a_long_step = clock.after_a_long_step
        self._widest_spread_ns = clock.widest_spread_ns
        self._mark: IntArray = np.full(64, -1, np.int64)
        self._owed = np.zeros(64, np.bool_)
        self._owed_until_ns = 0
        self._serial = 0
        self._begun_ns: int | None = None
        self._window_ns = self._widest_spread_ns
        self._streams = 0
        self._previous_end_ns: int | None = None
        self._decoding = 0
        self._leaving = 0
        self._wakes: deque[int] = deque()
        self._sizes: deque[int] = deque(maxlen=STEPS_COUNTED)  # streams of the last steps
        self.closed_ns = 0
        """Every read up to this moment belongs to a step that is closed."""

    @property
    def clear_step_ns(self) -> int:
        """Typical duration of a step that carries no prompt, at the present concurrency; 0 while unknown."""
        return self._clear.expect_ns(self._decoding)

    @property
    def pace_ns(self) -> int:
        """What a token of one stream takes as far as steps tell; 0 while unknown. Where streams read one after another
        and not together, as those of several engines do, a step is the distance of two of them, and says little."""
        step_ns = self.clear_step_ns
        if not step_ns or not self._sizes:
            return step_ns
        each = sum(self._sizes) / len(self._sizes)
        return step_ns if each >= IN_STEPS * self._decoding else round(step_ns * self._decoding / each)

    @property
    def decoding(self) -> int:
        """Streams between their first token and their end."""
        return self._decoding

    def joined(self, slot: int, t_ns: int, *, seen: bool = True) -> None:
        """A stream got its first token and decodes from now on. The first one after an idle time starts the clock, if
        its token was ``seen``."""
        self._grow(slot + 1)
        self._owed[slot] = False
        self._mark[slot] = -1
        if self._decoding <= self._leaving and seen:
            self._wakes.append(t_ns)
        self._decoding += 1

    def leaves(self) -> None:
        """A stream is over, but reads of it are still to be fed; `left` says which. Whoever joins when all that
        decode have left starts the clock: the engine was idle as far as the wire shows."""
        self._leaving += 1

    def stays(self) -> None:
        """One that was said to leave goes on."""
        self._leaving = max(0, self._leaving - 1)

    def left(self, slot: int) -> None:
        """A stream is over, and all its reads were fed."""
        self._grow(slot + 1)
        self._owed[slot] = False
        self._decoding = max(0, self._decoding - 1)
        self._leaving = max(0, self._leaving - 1)

    def hole(self) -> None:
        """Reads were lost: no step is measured across this moment, the clock starts anew with the next read."""
        self._serial += 2
        self._begun_ns = None
        self._previous_end_ns = None
        self._wakes.clear()
        self._owed[:] = False

    def feed(self, slots: npt.NDArray[np.integer], times_ns: IntArray) -> list[Step]:
        """Reads of decoding streams in order of time, first tokens left out. Returns the steps that closed."""
        steps: list[Step] = []
        if not len(slots):
            return steps
        self._grow(int(slots.max()) + 1)
        slots, times_ns = self._without_owed(slots, times_ns)
        while len(slots):
            slots, times_ns = self._feed_until_long(slots, times_ns, steps)
        return steps

    def flush(self, now_ns: int) -> list[Step]:
        """Close the step that has gone quiet. Every read before ``now_ns`` must have been fed."""
        steps: list[Step] = []
        if self._begun_ns is not None and now_ns > self._begun_ns + self._window_ns:
            self._close(steps)
        if self._begun_ns is None:
            self.closed_ns = max(self.closed_ns, now_ns)
        return steps

    def _feed_until_long(
        self, slots: npt.NDArray[np.integer], times_ns: IntArray, steps: list[Step]
    ) -> tuple[npt.NDArray[np.integer], IntArray]:
        """Feed reads up to the end of the first long step; returns what is left, without reads owed by that step."""
        again = np.maximum.accumulate(self._previous_read(slots))
        position, begin = 0, READ_IN_OPEN_STEP
        while position < len(slots):
            if self._begun_ns is None:
                self._open(int(times_ns[position]))
                begin = position
            end = self._end_of_open_step(again, times_ns, begin, position)
            self._streams += end - position
            self._mark[slots[position:end]] = self._serial
            position = end
            if position < len(slots) and self._close(steps):
                return self._without_owed(slots[position:], times_ns[position:])
        return slots[:0], times_ns[:0]

    def _previous_read(self, slots: npt.NDArray[np.integer]) -> IntArray:
        """For every read the index of the read before it by the same stream."""
        order = np.argsort(slots, kind="stable")
        ordered = slots[order]
        same = ordered[1:] == ordered[:-1]
        previous = np.full(len(slots), NEVER_READ, np.int64)
        if self._begun_ns is not None:
            previous[self._mark[slots] == self._serial] = READ_IN_OPEN_STEP
        previous[order[1:][same]] = order[:-1][same]
        return previous

    def _end_of_open_step(self, again: IntArray, times_ns: IntArray, begin: int, position: int) -> int:
        """Index of the first read that is no longer part of the open step, whose first read had the index ``begin``."""
        assert self._begun_ns is not None
        repeated = int(again[position:].searchsorted(begin)) + position
        late = int(times_ns.searchsorted(self._begun_ns + self._window_ns, "right"))
        return max(position, min(repeated, late))

    def _open(self, at_ns: int) -> None:
        self._serial += 1
        self._begun_ns = at_ns
        self.closed_ns = max(self.closed_ns, at_ns - 1)
        self._streams = 0
        clear_ns = self._clear.expect_ns(self._decoding)
        share = self._after_a_long_step if self._is_long(at_ns) else self._most_of_a_step
        widest_ns = self._widest_spread_ns
        self._window_ns = min(round(share * clear_ns), widest_ns) if clear_ns else widest_ns

    def _is_long(self, end_ns: int) -> bool:
        start_ns = self._start_of(end_ns)
        long_ns = self._clear.long_ns(self._decoding)
        return start_ns is not None and 0 < long_ns < end_ns - start_ns

    def _start_of(self, end_ns: int) -> int | None:
        """Start of a step that ends now: the end of the step before, or the first token that ended an idle time."""
        start_ns = self._previous_end_ns
        for wake_ns in self._wakes:
            if wake_ns <= end_ns and (start_ns is None or wake_ns > start_ns):
                start_ns = wake_ns
        return start_ns

    def _close(self, steps: list[Step]) -> bool:
        """Close the open step. True where reads may still be owed to it."""
        assert self._begun_ns is not None
        end_ns, self._begun_ns = self._begun_ns, None
        start_ns = self._start_of(end_ns)
        was_long = self._is_long(end_ns)
        self._previous_end_ns = end_ns
        while self._wakes and self._wakes[0] <= end_ns:
            self._wakes.popleft()
        if start_ns is None:
            return False
        steps.append(Step(start_ns, end_ns, self._streams))
        self._sizes.append(self._streams)
        if was_long:
            np.equal(self._mark, self._serial - 1, out=self._owed)
            self._owed_until_ns = end_ns + self._window_ns
        return was_long and bool(self._owed.any())

    def _without_owed(
        self, slots: npt.NDArray[np.integer], times_ns: IntArray
    ) -> tuple[npt.NDArray[np.integer], IntArray]:
        """Leave out the reads that belong to the long step closed before: the first of each stream it owed one."""
        if not self._owed.any():
            return slots, times_ns
        end = int(times_ns.searchsorted(self._owed_until_ns, "right"))
        kept = np.ones(len(slots), np.bool_)
        for index in np.flatnonzero(self._owed[slots[:end]]):
            kept[index] = not self._owed[slots[index]]
            self._owed[slots[index]] = False
        if end < len(slots):
            self._owed[:] = False
        return slots[kept], times_ns[kept]

    def _grow(self, size: int) -> None:
        if size > len(self._mark):
            room = max(size, 2 * len(self._mark))
            self._mark = np.concatenate((self._mark, np.full(room - len(self._mark), -1, np.int64)))
            self._owed = np.concatenate((self._owed, np.zeros(room - len(self._owed), np.bool_)))
