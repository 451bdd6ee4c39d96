"""Requests in prefill as viewers see them: when they began, how large they are, and when they were over."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from prefillwatch.analysis.requests import ModelNames, Request

#: More requests than this are not told one by one; they are counted.
MOST_PREFILLS: Final = 64


@dataclass(slots=True)
class _Told:
    number: int
    tokens: int = -1


class Prefills:
    """The requests without a first token that viewers know of."""

    def __init__(self, ms: Callable[[int], int], names: ModelNames) -> None:
        """``ms`` turns monotonic nanoseconds into viewers' time."""
        self._ms = ms
        self._names = names
        self._numbers = itertools.count(1)
        self._waiting: dict[Request, _Told] = {}
        self._answered: dict[Request, _Told] = {}  # whose size was a guess when their first token came
        self._since_ns = 0
        self.count = 0
        self.in_service: list[int] = []

    def now(
        self, requests: Sequence[Request], in_service: set[Any], now_ns: int
    ) -> tuple[list[list[Any]], list[list[Any]], list[list[int]]]:
        """Descriptions of those that are new or whose size is known better; [number, until, had a first token] of those
        that are over; [number, size] of those that were over before it was known."""
        waiting = [each for each in requests if each.in_prefill]
        self.count = len(waiting)
        quick = [each for each in requests if each.first_ns > self._since_ns and each.sent_ns > self._since_ns]
        self._begin((*waiting, *quick))
        changed = [self._describe(*each) for each in self._changed(self._waiting)]
        sized = [[told.number, told.tokens] for _, told in self._changed(self._answered)]
        over = self._over(set(waiting), now_ns)
        self._forget_answered(set(requests))
        self._since_ns = now_ns
        self.in_service = [told.number for request, told in self._waiting.items() if request.rid in in_service]
        if waiting and not self.in_service and not any(each.decoding for each in requests):
            # Without a stream to show the engine's steps nobody knows; but it works on something.
            self.in_service = [told.number for told in list(self._waiting.values())[:1]]
        return changed, over, sized

    def all(self) -> list[list[Any]]:
        return [self._describe(request, told) for request, told in self._waiting.items()]

    def _begin(self, requests: Iterable[Request]) -> None:
        for request in requests:
            if request not in self._waiting and len(self._waiting) < MOST_PREFILLS:
                self._waiting[request] = _Told(next(self._numbers))

    def _over(self, waiting: set[Request], now_ns: int) -> list[list[Any]]:
        over = []
        for request in [each for each in self._waiting if each not in waiting]:
            told = self._waiting.pop(request)
            over.append([told.number, self._ms(request.first_ns or now_ns), bool(request.first_ns)])
            if not request.prompt_exact and len(self._answered) < MOST_PREFILLS:
                self._answered[request] = told
        return over

    def _changed(self, requests: dict[Request, _Told]) -> list[tuple[Request, _Told]]:
        changed = [(request, told) for request, told in requests.items() if request.prompt_tokens != told.tokens]
        for request, told in changed:
            told.tokens = request.prompt_tokens
        return changed

    def _forget_answered(self, requests: set[Request]) -> None:
        """Usage, which tells the true size, comes with the end of most answers."""
        for request in [each for each in self._answered if each.prompt_exact or each not in requests]:
            del self._answered[request]

    def _describe(self, request: Request, told: _Told) -> list[Any]:
        model, since = self._names.labels[request.model], self._ms(request.sent_ns)
        tokens, exact = request.prompt_tokens, request.prompt_exact
        return [told.number, request.request_id, model, tokens, exact, since, request.streaming]
