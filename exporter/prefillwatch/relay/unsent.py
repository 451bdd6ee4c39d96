"""Bytes of answers that clients' sockets did not take: for how long, and how many of all clients together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from prefillwatch.relay.deadlines import Deadlines
from prefillwatch.relay.reactor import Reactor

#: About one read is held for a client, so this is a thousand of them that all are behind.
MOST_UNSENT: Final = 64 * 2**20

T = TypeVar("T")


class Unsent(Generic[T]):
    """Clients for whom something is held; ``size`` is how much for all of them."""

    def __init__(
        self,
        reactor: Reactor,
        limit_s: float,
        late: Callable[[T], None],
        leave: Callable[[T], None],
        most: int = MOST_UNSENT,
    ) -> None:
        """``late`` is called for a client that has taken nothing for so long, ``leave`` for the one that has taken
        nothing for longest when more than ``most`` bytes are held."""
        self.size = 0
        self._held: dict[T, int] = {}
        self._leave = leave
        self._most = most
        self._limits = Deadlines[T](reactor, limit_s, late)

    def holds(self, client: T, size: int) -> None:
        """``size`` bytes are held for the client, as it has just taken some or was given the first of them."""
        self.size += size - self._held.get(client, 0)
        self._held[client] = size
        self._limits.add(client)
        while self.size > self._most:
            oldest = self._limits.oldest()
            if oldest is None or oldest is client:  # who has just taken some stays
                return
            self.forget(oldest)
            self._leave(oldest)

    def grows(self, client: T, size: int) -> None:
        """It was given more while it took nothing."""
        self.size += size - self._held.get(client, 0)
        self._held[client] = size

    def forget(self, client: T) -> None:
        """It has taken all, or it is gone; calling twice does no harm."""
        self.size -= self._held.pop(client, 0)
        self._limits.discard(client)
