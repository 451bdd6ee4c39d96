"""Deadlines of one fixed duration, kept in the order they were set: adding, dropping and expiring cost nothing much."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from prefillwatch.relay.reactor import Reactor, monotonic_ns

T = TypeVar("T")


class Deadlines(Generic[T]):
    """Calls ``expired(item)`` for items that were added ``seconds`` ago and not discarded since."""

    __slots__ = ("_armed", "_due", "_duration_ns", "_expired", "_reactor")

    def __init__(self, reactor: Reactor, seconds: float, expired: Callable[[T], None]) -> None:
        self._reactor = reactor
        self._duration_ns = int(seconds * 1e9)
        self._expired = expired
        self._due: dict[T, int] = {}
        self._armed = False

    def __len__(self) -> int:
        return len(self._due)

    def add(self, item: T) -> None:
        """Start the item's time anew."""
        self._due.pop(item, None)
        self._due[item] = due = monotonic_ns() + self._duration_ns
        if not self._armed:
            self._arm(due)

    def oldest(self) -> T | None:
        """The item whose time is over first; None: there is none."""
        return next(iter(self._due), None)

    def waited_ns(self, item: T) -> int:
        """How long ago it was added."""
        return monotonic_ns() - self._due[item] + self._duration_ns

    def discard(self, item: T) -> None:
        self._due.pop(item, None)

    def clear(self) -> None:
        self._due.clear()

    def _arm(self, due: int) -> None:
        self._armed = True
        self._reactor.call_at(due, self._expire)

    def _expire(self) -> None:
        self._armed = False
        now = monotonic_ns()
        while self._due:
            item, due = next(iter(self._due.items()))
            if due > now:
                self._arm(due)
                return
            del self._due[item]
            self._reactor.guarded(partial(self._expired, item))
