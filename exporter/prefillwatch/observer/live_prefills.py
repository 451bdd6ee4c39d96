"""Requests in prefill as viewers see them: when they began, how large they are, and when they were over."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from prefillwatch.analysis.models import ModelNames
from prefillwatch.analysis.request import Request

#: More requests than this are not told one by one; they are counted.
MOST_PREFILLS: Final = 64


class Prefills:
    """The requests without a first token that viewers know of."""

    def __init__(self, ms: Callable[[int], int]) -> None:
        """``ms`` turns monotonic nanoseconds into viewers' time."""
        self._ms = ms
        self._numbers = itertools.count(1)
        self._known: dict[Request, tuple[int, int]] = {}  # number, and the size that was told
        self.count = 0
        self.in_service: list[int] = []

    def now(self, requests: Sequence[Request], in_service: set[Any], now_ns: int) -> tuple[list[Request], list[Any]]:
        """Those that are new or whose size is known better, and [number, until, had a first token] of those that are
        over."""
        waiting = [each for each in requests if each.in_prefill]
        self.count = len(waiting)
        over = self._over(set(waiting), now_ns)
        changed = []
        for request in waiting:
            number, told = self._known.get(request, (0, -1))
            if told != request.prompt_tokens and (number or len(self._known) < MOST_PREFILLS):
                self._known[request] = (number or next(self._numbers), request.prompt_tokens)
                changed.append(request)
        self.in_service = [number for request, (number, _) in self._known.items() if request.rid in in_service]
        return changed, over

    def _over(self, waiting: set[Request], now_ns: int) -> list[Any]:
        over = []
        for request in [each for each in self._known if each not in waiting]:
            number, _ = self._known.pop(request)
            over.append([number, self._ms(request.first_ns or now_ns), bool(request.first_ns)])
        return over

    def all(self, names: ModelNames) -> list[list[Any]]:
        return self.describe(self._known, names)

    def describe(self, requests: Iterable[Request], names: ModelNames) -> list[list[Any]]:
        return [self._describe(request, names) for request in requests]

    def _describe(self, request: Request, names: ModelNames) -> list[Any]:
        number, tokens = self._known[request]
        model, since = names.labels[request.model], self._ms(request.sent_ns)
        return [number, request.request_id, model, tokens, request.prompt_exact, since, request.streaming]
