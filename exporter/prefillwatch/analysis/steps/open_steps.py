"""The steps that are not final yet, and which of them made which first token.

Example, in milliseconds: clear steps end at 10, 20 and 30, a long one at 90, a clear one at 100. A first token comes at
103. Steps from 88 to 113 (15 ms before it to 10 ms after) may have made it; the latest of them that was long enough for
its prompt is the one at 90, so the prompt is noted as `finished` there, although a clear step ended in between.

`all` holds the steps in order of time. `scanned` counts those at the front of which it is settled which first tokens
they made; a first token that comes later than that cannot belong to them. With no stream decoding nothing shows the
engine's steps; then a step is made up that ends with the first token (`observed` False).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

from prefillwatch.analysis.steps.packing import OpenStep, Packing, Prompt
from prefillwatch.analysis.tuning import DEFAULT, Tuning

if TYPE_CHECKING:
    from prefillwatch.analysis.cost import ClearStep

_end = attrgetter("end_ns")


class OpenSteps:
    """Steps in order of time, the first `scanned` of them with all their first tokens known."""

    __slots__ = (
        "_after_ns",
        "_before_ns",
        "_clear",
        "_clear_at_least",
        "_dropped_end_ns",
        "all",
        "last_end_ns",
        "scanned",
    )

    def __init__(self, clear: ClearStep, tuning: Tuning = DEFAULT) -> None:
        self._clear = clear
        self._after_ns = tuning.first_tokens.after_first_read_ns
        self._before_ns = tuning.first_tokens.before_first_read_ns
        self._clear_at_least = tuning.packing.clear_at_least
        self._dropped_end_ns = 0
        self.all: list[OpenStep] = []
        self.scanned = 0
        self.last_end_ns = 0

    def __len__(self) -> int:
        return len(self.all)

    def make(self, start_ns: int, end_ns: int, decoders: int, observed: bool = True) -> OpenStep:
        step = OpenStep(start_ns, end_ns, decoders, self._clear.expect_ns(decoders), False, observed)
        self._begin(step, start_ns)
        return step

    def _begin(self, step: OpenStep, start_ns: int) -> None:
        """Let a step begin at this moment, which decides whether it is long, or clear, or too short to be either."""
        step.start_ns = start_ns
        step.long = 0 < self._clear.long_ns(step.decoders) < step.end_ns - start_ns
        step.is_clear = not step.long and step.end_ns - start_ns >= self._clear_at_least * step.clear_ns

    def append(self, step: OpenStep) -> None:
        self.all.append(step)
        self.last_end_ns = max(self.last_end_ns, step.end_ns)

    def index(self, step: OpenStep) -> int | None:
        """Where a step is; None when it is gone."""
        index = bisect_left(self.all, step.end_ns, key=_end)
        while index < len(self.all) and self.all[index].end_ns == step.end_ns:
            if self.all[index] is step:
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

    def take_back(self, start_ns: int) -> list[Prompt]:
        """Forget the latest steps that ended after a moment and were not reported by the engine, which now reports what
        happened then. Returns the prompts that they were taken to have finished."""
        finished: list[Prompt] = []
        while len(self.all) > self.scanned and not self.all[-1].reported and self.all[-1].end_ns > start_ns:
            finished += self.all.pop().finished
        return finished

    def note_finished(self, prompt: Prompt, packing: Packing, waits_since_ns: int) -> None:
        """Find the step that made a first token, or make one up where no stream was there to show it.

        ``waits_since_ns``: since when a prompt waited, from where a made-up step may begin.
        """
        first_ns = prompt.over_ns
        low = max(self.scanned, bisect_left(self.all, first_ns - self._after_ns, key=_end))
        high = bisect_right(self.all, first_ns + self._before_ns, key=_end)
        while high > low and self.all[high - 1].start_ns >= first_ns:
            high -= 1  # it began with this first token or later
        index = self._maker(prompt, low, high, packing) if low < high else self._make_up(first_ns, waits_since_ns)
        self.all[index].finished.append(prompt)

    def _maker(self, prompt: Prompt, low: int, high: int, packing: Packing) -> int:
        """The step among those near the first token: the latest that was long enough, else the last one before it."""
        tokens = min(prompt.uncached, packing.engine.budget or prompt.uncached)
        needed_ns = packing.too_short_ns(packing.law.expect_ns(tokens))
        last = low
        for index in range(high - 1, low - 1, -1):
            step = self.all[index]
            if step.start_ns < prompt.sent_ns:
                break
            if step.end_ns <= prompt.over_ns:
                last = max(last, index)
            if step.long and step.excess_ns >= needed_ns:
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

    def split(self, step: OpenStep, tokens: int, others_wait: bool, packing: Packing) -> None:
        """Split a made-up step into as many as the tokens it finished need; the last may be less than full."""
        budget = packing.engine.budget
        took_ns = step.end_ns - step.start_ns
        steps = -(-tokens // budget) if budget else 1
        if budget and packing.law.known:
            steps = min(steps, round(took_ns / (step.clear_ns + packing.law.expect_ns(budget))))
        index = self.index(step)
        if steps < 2 or not step.long or index is None:
            return
        full = steps if others_wait else max(steps - 1, tokens / budget)
        starts = [step.start_ns + round(each * took_ns / full) for each in range(steps)]
        parts = [self.make(start, end, 0, observed=False) for start, end in pairwise(starts)]
        self._begin(step, starts[-1])
        self.all[index:index] = parts
        if index <= self.scanned:
            self.scanned += len(parts)
