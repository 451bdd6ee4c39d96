"""Requests in prefill as viewers see them: when they began, how large they are, and when they were over."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prefillwatch.core.view import RequestNow, View

#: More requests than this are not shown one by one; they are counted.
MOST_PREFILLS: Final = 64


@dataclass(slots=True)
class _Shown:
    """``request`` is how it was at the last frame that it was in."""

    number: int
    request: RequestNow
    tokens: int = -1


class Prefills:
    """The requests without a first token that viewers know of."""

    def __init__(self, ms: Callable[[int], int]) -> None:
        """``ms`` turns monotonic nanoseconds into viewers' time."""
        self._ms = ms
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _Shown] = {}
        self._answered: dict[int, _Shown] = {}  # whose size was a guess when their first token came
        self._since_ns = 0
        self.count = 0
        self.in_service: list[int] = []

    def now(self, view: View) -> tuple[list[list[Any]], list[list[Any]], list[list[int]]]:
        """Descriptions of those that are new or whose size is known better; [number, until, had a first token] of those
        that are over; [number, size] of those that were over before it was known."""
        unanswered = view.without_token(self._since_ns)
        waiting = [each for each in unanswered if each.in_prefill]
        self.count = len(waiting)
        self._begin(unanswered)
        known = view.those({*self._waiting, *self._answered})
        for shown in (*self._waiting.values(), *self._answered.values()):
            shown.request = known.get(shown.request.rid, shown.request)
        changed = [self._describe(shown) for shown in self._changed(self._waiting)]
        sized = [[shown.number, shown.tokens] for shown in self._changed(self._answered)]
        over = self._over({each.rid for each in waiting}, view.known_ns)
        # Usage, which has the true size, comes with the end of most answers.
        for rid, shown in list(self._answered.items()):
            if shown.request.prompt_exact or not view.in_flight(rid):
                del self._answered[rid]
        self._since_ns = view.known_ns
        self.in_service = [each.number for each in self._waiting.values() if each.request.in_service]
        if waiting and not self.in_service and not any(each.decoding for each in view.load):
            # Without a stream to show the engine's steps nobody knows; but it works on something.
            self.in_service = [each.number for each in list(self._waiting.values())[:1]]
        return changed, over, sized

    def all(self) -> list[list[Any]]:
        return [self._describe(shown) for shown in self._waiting.values()]

    def _begin(self, requests: Iterable[RequestNow]) -> None:
        for request in requests:
            if request.rid not in self._waiting and len(self._waiting) < MOST_PREFILLS:
                self._waiting[request.rid] = _Shown(next(self._numbers), request)

    def _over(self, waiting: set[int], now_ns: int) -> list[list[Any]]:
        over = []
        for rid in [each for each in self._waiting if each not in waiting]:
            shown = self._waiting.pop(rid)
            request = shown.request
            over.append([shown.number, self._ms(request.first_ns or now_ns), bool(request.first_ns)])
            if not request.prompt_exact and len(self._answered) < MOST_PREFILLS:
                self._answered[rid] = shown
        return over

    def _changed(self, requests: Mapping[int, _Shown]) -> list[_Shown]:
        changed = [shown for shown in requests.values() if shown.request.prompt_tokens != shown.tokens]
        for shown in changed:
            shown.tokens = shown.request.prompt_tokens
        return changed

    def _describe(self, shown: _Shown) -> list[Any]:
        each = shown.request
        since = self._ms(each.sent_ns)
        return [shown.number, each.request_id, each.model, each.prompt_tokens, each.prompt_exact, since, each.streaming]
