"""The steps that are not final yet, and which of them made which first token."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

from prefillwatch.analysis.steps.packing import TOO_SHORT, Engine, OpenStep, Prompt

if TYPE_CHECKING:
    from prefillwatch.analysis.steps.clear_step import ClearStep

TRAIL_NS = 15_000_000
"""First tokens come up to so much later than the first read of the step that made them …"""
LEAD_NS = 10_000_000
"""… and up to so much earlier, since delivery after a long step spreads."""

_end = attrgetter("end_ns")


class OpenSteps:
    """Steps in order of time. Those before ``scanned`` have been told whose first tokens they made."""

    __slots__ = ("_clear", "_dropped_end_ns", "all", "last_end_ns", "scanned")

    def __init__(self, clear: ClearStep) -> None:
        self._clear = clear
        self._dropped_end_ns = 0
        self.all: list[OpenStep] = []
        self.scanned = 0
        self.last_end_ns = 0

    def __len__(self) -> int:
        return len(self.all)

    def make(self, start_ns: int, end_ns: int, decoders: int, observed: bool = True) -> OpenStep:
        beat = OpenStep(start_ns, end_ns, decoders, self._clear.expect_ns(decoders), False, observed)
        self._begin(beat, start_ns)
        return beat

    def _begin(self, beat: OpenStep, start_ns: int) -> None:
        """Let a step begin at this moment, which decides whether it is long."""
        beat.start_ns = start_ns
        beat.long = 0 < self._clear.long_ns(beat.decoders) < beat.end_ns - start_ns

    def append(self, beat: OpenStep) -> None:
        self.all.append(beat)
        self.last_end_ns = max(self.last_end_ns, beat.end_ns)

    def index(self, beat: OpenStep) -> int | None:
        """Where a step is; None when it is gone."""
        index = bisect_left(self.all, beat.end_ns, key=_end)
        while index < len(self.all) and self.all[index].end_ns == beat.end_ns:
            if self.all[index] is beat:
                return index
            index += 1
        return None

    def next_until(self, until_ns: int) -> OpenStep | None:
        """The next step to be scanned, if it ended by then."""
        if self.scanned < len(self.all) and self.all[self.scanned].end_ns <= until_ns:
            return self.all[self.scanned]
        return None

    def drop(self, count: int) -> None:
        """Forget the oldest."""
        if count:
            self._dropped_end_ns = self.all[count - 1].end_ns
            del self.all[:count]
            self.scanned = max(0, self.scanned - count)

    def replace_end(self, start_ns: int) -> list[Prompt]:
        """Forget the latest steps that ended after a moment and are not the engine's own account. Returns the prompts
        whose first tokens they were taken to have made."""
        released: list[Prompt] = []
        while len(self.all) > self.scanned and not self.all[-1].told and self.all[-1].end_ns > start_ns:
            released += self.all.pop().released
        return released

    def release(self, prompt: Prompt, engine: Engine, waits_since_ns: int) -> None:
        """Find the step that made a first token, or make one up where no stream was there to show it.

        ``waits_since_ns``: since when somebody waited, from where a made-up step may begin.
        """
        first_ns = prompt.over_ns
        low = max(self.scanned, bisect_left(self.all, first_ns - TRAIL_NS, key=_end))
        high = bisect_right(self.all, first_ns + LEAD_NS, key=_end)
        while high > low and self.all[high - 1].start_ns >= first_ns:
            high -= 1  # it began with this first token or later
        index = self._maker(prompt, low, high, engine) if low < high else self._make_up(first_ns, waits_since_ns)
        self.all[index].released.append(prompt)

    def _maker(self, prompt: Prompt, low: int, high: int, engine: Engine) -> int:
        """The step among those near the first token: the latest that was long enough, else the last one before it."""
        needed_ns = TOO_SHORT * engine.cost.expect_ns(min(prompt.uncached, engine.budget or prompt.uncached))
        last = low
        for index in range(high - 1, low - 1, -1):
            beat = self.all[index]
            if beat.start_ns < prompt.sent_ns:
                break
            if beat.end_ns <= prompt.over_ns:
                last = max(last, index)
            if beat.long and beat.excess_ns >= needed_ns:
                return index
        return last

    def _make_up(self, first_ns: int, waits_since_ns: int) -> int:
        """Insert a step that ends with this first token."""
        index = max(self.scanned, bisect_right(self.all, first_ns, key=_end))
        following = self.all[index] if index < len(self.all) else None
        if following is not None and following.start_ns < first_ns <= following.end_ns:
            start_ns = following.start_ns
            self._begin(following, first_ns)
        else:
            before_ns = self.all[index - 1].end_ns if index else self._dropped_end_ns
            start_ns = max(before_ns, waits_since_ns)
        self.all.insert(index, self.make(min(start_ns, first_ns), first_ns, 0, observed=False))
        self.last_end_ns = max(self.last_end_ns, first_ns)
        return index

    def part(self, beat: OpenStep, tokens: int, others_wait: bool, engine: Engine) -> None:
        """Part a made-up step into as many as the tokens it finished need; the last may be less than full."""
        took_ns = beat.end_ns - beat.start_ns
        steps = -(-tokens // engine.budget) if engine.budget else 1
        if engine.budget and engine.cost.known:
            steps = min(steps, round(took_ns / (beat.clear_ns + engine.cost.expect_ns(engine.budget))))
        index = self.index(beat)
        if steps < 2 or not beat.long or index is None:
            return
        full = steps if others_wait else max(steps - 1, tokens / engine.budget)
        starts = [beat.start_ns + round(each * took_ns / full) for each in range(steps)]
        parts = [self.make(start, end, 0, observed=False) for start, end in pairwise(starts)]
        self._begin(beat, starts[-1])
        self.all[index:index] = parts
        if index <= self.scanned:
            self.scanned += len(parts)
