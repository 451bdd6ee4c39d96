"""Deadlines of one fixed duration, kept in the order they were set: adding, dropping and expiring cost nothing much."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final, Generic, TypeVar

from prefillwatch.relay.reactor import Reactor, monotonic_ns
from prefillwatch.units import NS

#: Ending one may mean an answer: as many are ended before tokens have their turn.
_AT_ONCE: Final = 16
_NEVER: Final = 2**63

T = TypeVar("T")


class Deadlines(Generic[T]):
    """Calls ``expired(item)`` for items that were added ``seconds`` ago and not discarded since."""

    __slots__ = ("_armed", "_due", "_duration_ns", "_expired", "_reactor")

    def __init__(self, reactor: Reactor, seconds: float, expired: Callable[[T], None]) -> None:
        self._reactor = reactor
        self._duration_ns = int(seconds * NS)
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

    def longest_waiting(self, count: int) -> list[T]:
        """The ``count`` items whose time is over first, in order."""
        return list(islice(self._due, count))

    def waited_ns(self, item: T) -> int:
        """How long ago it was added."""
        return monotonic_ns() - self._due[item] + self._duration_ns

    def discard(self, item: T) -> None:
        self._due.pop(item, None)

    def _arm(self, due: int) -> None:
        self._armed = True
        self._reactor.call_at(due, self._expire)

    def _expire(self) -> None:
        """Those whose time is over; where many came together, a few per turn."""
        now = monotonic_ns()
        for _ in range(_AT_ONCE):
            item, due = next(iter(self._due.items()), (None, _NEVER))
            if item is None or due > now:
                break
            del self._due[item]
            self._reactor.guarded(partial(self._expired, item))
        self._armed = False
        if self._due:
            due = next(iter(self._due.values()))
            if due > now:
                self._arm(due)
            else:
                self._armed = True
                self._reactor.soon_back(self._expire)
