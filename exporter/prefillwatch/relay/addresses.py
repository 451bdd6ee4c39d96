"""How many connections each address has, where that is limited."""

from __future__ import annotations

import socket
from collections import Counter
from typing import Final

#: Of an IPv6 address, what one host or household has: a /64.
_NETWORK_BYTES: Final = 8


class Addresses:
    """``turned_away`` counts connections of addresses that had as many as they may."""

    def __init__(self, most: int) -> None:
        """``most`` connections for each; 0: no limit, and nothing is counted."""
        self.turned_away = 0
        self._most = most
        self._open: Counter[bytes] = Counter()

    def admit(self, peer: bytes) -> bool:
        """Whether the address may have one more connection; then it has."""
        if not self._most:
            return True
        network = _network(peer)
        if self._open[network] >= self._most:
            self.turned_away += 1
            return False
        self._open[network] += 1
        return True

    def leave(self, peer: bytes) -> None:
        """One of its connections is closed."""
        if not self._most:
            return
        network = _network(peer)
        self._open[network] -= 1
        if not self._open[network]:
            del self._open[network]


def _network(peer: bytes) -> bytes:
    if b":" not in peer:
        return peer
    return socket.inet_pton(socket.AF_INET6, peer.decode())[:_NETWORK_BYTES]
