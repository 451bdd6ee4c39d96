"""Requests from being sent until their prompts have found their place among the engine's steps.

A prompt is in these books, in this order: `waiting` and `unplaced` from when it is sent; with its first token it leaves
`waiting` and is in `firsts` until the step that made that token is known; it leaves `unplaced` when it has been put
into its steps. One whose client leaves goes from both to `left`. An answer that is not streamed shows no first token,
so its prompt is in `silent`, with the tokens that have no place yet; and so is one whose client left while the engine
reads on, until it has been read.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from prefillwatch.analysis.steps.packing import Prompt

#: So many of the prompts that wait longest are looked at for a large one: a bound on work.
OLDEST: Final = 64

by_arrival = attrgetter("sent_ns")
by_first_token = attrgetter("first_ns")


class PromptQueue:
    """Prompts that wait, that have a first token and no place yet, that left without one. All in order of arrival."""

    __slots__ = ("_busy_until_ns", "_known", "_over", "firsts", "left", "silent", "unplaced", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[Hashable, Prompt] = {}
        """Without a first token, by request."""
        self.unplaced: dict[Hashable, Prompt] = {}
        """Those, and the ones with a first token that have not been put into steps yet."""
        self.firsts: list[Prompt] = []
        """Prompts whose first tokens came, and it is not known from which step; in order of first tokens."""
        self.left: list[Prompt] = []
        """Ended without a first token, and not placed yet."""
        self.silent: dict[Prompt, int] = {}
        """Whose first tokens will not show, with the prompt tokens that have no place yet."""
        self._known: dict[Hashable, Prompt] = {}
        self._over: deque[Prompt] = deque()
        self._busy_until_ns = 0

    def __getitem__(self, rid: Hashable) -> Prompt | None:
        return self._known.get(rid)

    def without_a_first_token(self) -> PromptQueue:
        """Another queue of the prompts that wait, for an engine that may have them."""
        other = PromptQueue()
        for prompt in sorted((*self.waiting.values(), *self.silent), key=by_arrival):
            if not prompt.is_over:
                other.enter(replace(prompt, guessed=0))
        return other

    def drop(self, rid: Hashable) -> Prompt | None:
        """Forget one as if it had never come."""
        prompt = self._known.pop(rid, None)
        self.waiting.pop(rid, None)
        self.unplaced.pop(rid, None)
        if prompt is not None:
            self.silent.pop(prompt, None)
        return prompt

    def enter(self, prompt: Prompt) -> None:
        self._known[prompt.rid] = prompt
        if prompt.streamed:
            self.waiting[prompt.rid] = self.unplaced[prompt.rid] = prompt
        else:
            self.silent[prompt] = prompt.uncached

    def show(self, rid: Hashable) -> None:
        """The first token of one in `silent` will be known."""
        prompt = self._known.get(rid)
        if prompt is None or prompt.is_over or self.silent.get(prompt) != prompt.uncached:
            return
        del self.silent[prompt]
        prompt.streamed = True
        for books in (self.waiting, self.unplaced):
            ordered = sorted((*books.values(), prompt), key=by_arrival)
            books.clear()
            books.update((each.rid, each) for each in ordered)

    def first_token(self, rid: Hashable, t_ns: int) -> None:
        prompt = self.waiting.pop(rid, None)
        if prompt is not None:
            prompt.first_ns = max(t_ns, prompt.sent_ns)
            self._end(prompt, t_ns)
            self.find_step_of(prompt)
        else:
            self.leave(rid, t_ns)  # streamed after all, which its body, cut or lost, did not show

    def find_step_of(self, prompt: Prompt) -> None:
        """The step that made the first token of a prompt is to be found."""
        insort(self.firsts, prompt, key=by_first_token)

    def leave(self, rid: Hashable, t_ns: int) -> None:
        prompt = self._known.get(rid)
        if prompt is None or prompt.is_over:
            return
        prompt.gone_ns = max(t_ns, prompt.sent_ns)
        self._end(prompt, t_ns)
        if self.waiting.pop(rid, None):
            del self.unplaced[rid]
            insort(self.left, prompt, key=by_arrival)

    def leave_unnoticed(self, rid: Hashable, t_ns: int) -> None:
        """The client of a prompt left, and the engine reads on: from here on nothing but its steps will show it."""
        prompt = self._known.get(rid)
        if prompt is None or prompt.is_over:
            return
        prompt.left_ns, prompt.streamed = max(t_ns, prompt.sent_ns), False
        if self.waiting.pop(rid, None):
            del self.unplaced[rid]
            self.silent[prompt] = prompt.uncached

    def read_silently(self, prompt: Prompt, rest: int, t_ns: int) -> None:
        """Of a prompt whose first token will not show, so many tokens have no place yet."""
        self.silent[prompt] = rest
        if not rest:
            self._end_reading(prompt, t_ns)

    def end_all_that_left(self, before_ns: int) -> None:
        """What was left behind before a moment has been read by then; in which steps is still to be found."""
        for prompt in self.silent:
            if prompt.left_ns is not None and prompt.left_ns < before_ns:
                self._end_reading(prompt, before_ns)

    def _end_reading(self, prompt: Prompt, t_ns: int) -> None:
        if prompt.left_ns is not None and not prompt.is_over:
            prompt.gone_ns = max(t_ns, prompt.left_ns)
            self._end(prompt, prompt.gone_ns)

    def _end(self, prompt: Prompt, t_ns: int) -> None:
        self._busy_until_ns = max(self._busy_until_ns, t_ns)
        self._over.append(prompt)

    def take_firsts(self, until_ns: int) -> list[Prompt]:
        """First tokens up to a moment, once."""
        count = 0
        for prompt in self.firsts:
            if prompt.over_ns > until_ns:
                break
            count += 1
        taken = self.firsts[:count]
        del self.firsts[:count]
        return taken

    def take_left(self, until_ns: int, sent_before_ns: int) -> list[Prompt]:
        """Prompts that left up to a moment and had been sent before another, once."""
        count = 0
        for prompt in self.left:
            if prompt.sent_ns > sent_before_ns or prompt.over_ns > until_ns:
                break
            count += 1
        taken = self.left[:count]
        del self.left[:count]
        return taken

    def all_served(self, until_ns: int) -> bool:
        """Whether every prompt sent up to a moment has a first token, and the step that made it is known; or left by
        then: one that left later may have been in a step that is not over."""
        oldest = next(iter(self.waiting.values()), None)
        if oldest is not None and oldest.sent_ns <= until_ns:
            return False
        unknown = [*self.firsts, *(each for each in self.left if each.over_ns > until_ns)]
        return all(each.sent_ns > until_ns for each in unknown)

    def placed(self, prompt: Prompt) -> None:
        self.unplaced.pop(prompt.rid, None)

    def oldest_unplaced(self, *besides: Prompt) -> Prompt | None:
        return next((each for each in self.unplaced.values() if each not in besides), None)

    def oldest_without_place(self) -> list[Prompt]:
        """Of those that may still be put into a step: the oldest that waits or was served, and the oldest that left."""
        oldest = self.oldest_unplaced()
        return self.left[:1] if oldest is None else [oldest, *self.left[:1]]

    def fresh(self, since_ns: int, until_ns: int) -> list[Prompt]:
        """Unplaced prompts that were sent between two moments: the ones before were passed over by a clear step."""
        return list(reversed(list(_newest_first(self.unplaced, since_ns, until_ns))))

    def oldest_fresh_ns(self, since_ns: int) -> int | None:
        """When the oldest of the unplaced prompts that were sent after a moment was sent."""
        sent_ns = None
        for prompt in reversed(self.unplaced.values()):
            if prompt.sent_ns <= since_ns:
                break
            sent_ns = prompt.sent_ns
        return sent_ns

    def large(self, tokens: int, until_ns: int) -> list[Prompt]:
        """Among the prompts that wait longest, the ones with more uncached tokens than that."""
        oldest = islice(self.waiting.values(), OLDEST)
        return [prompt for prompt in oldest if prompt.uncached > tokens and prompt.sent_ns <= until_ns]

    def none_waited(self, start_ns: int, end_ns: int, since_ns: int) -> bool:
        """Whether no prompt was without a first token in that time, apart from those sent before ``since_ns``."""
        if self._busy_until_ns > start_ns:
            return False
        if any(prompt.gone_ns is None and since_ns < prompt.sent_ns < end_ns for prompt in self.silent):
            return False
        return not any(_newest_first(self.waiting, since_ns, end_ns))

    def pass_over_silent(self, sent_until_ns: int, step_end_ns: int) -> None:
        """After a clear step: prompts of answers that are not streamed which had come by then have been read, unless
        others have waited longer."""
        if not self.silent:
            return
        queued = (each.sent_ns for each in self.unplaced.values() if not each.is_over or each.over_ns > step_end_ns)
        longest_ns = next(queued, step_end_ns)
        for prompt in self.silent:
            if prompt.sent_ns <= min(sent_until_ns, longest_ns):
                self.read_silently(prompt, 0, step_end_ns)

    def forget(self, before_ns: int, most: int) -> None:
        """Forget those that were over before a moment, and all but so many of the others that are over."""
        self.end_all_that_left(before_ns)
        while self._over and (self._over[0].over_ns < before_ns or len(self._over) > most):
            prompt = self._over.popleft()
            if self._known.get(prompt.rid) is prompt:
                del self._known[prompt.rid]
            self.silent.pop(prompt, None)
        if len(self.left) > most:
            del self.left[:-most]


def _newest_first(prompts: dict[Hashable, Prompt], since_ns: int, until_ns: int) -> Iterator[Prompt]:
    for prompt in reversed(prompts.values()):
        if prompt.sent_ns <= since_ns:
            return
        if prompt.sent_ns <= until_ns:
            yield prompt
