"""The life of a client's connection: what its bytes are for, and what may follow what.

As in `exchange.state` the table is the whole truth, and going on to a state that it does not allow is a fault of ours.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import Final

from prefillwatch.relay.errors import StateError
from prefillwatch.units import NS


class ClientState(enum.IntEnum):
    HANDSHAKE = 0  # TLS is being agreed on
    IDLE = 1  # nothing of a request has come
    HEAD = 2  # a request has begun, its head is not complete
    BODY = 3  # its head is known, its body is not complete
    WAITING = 4  # the same, and no more of it is read before there is room for it
    ANSWERING = 5  # it is complete; what comes ahead of the next one is kept for then
    FULL = 6  # the same, and no more is read ahead
    LAST = 7  # the same, and the client has said that it sends nothing more; it may still read
    AHEAD = 8  # bytes of the next request were sent ahead, and have their turn soon
    CLOSING = 9  # no further request is taken, and our side is closed once what is held has left
    BREAKING = 10  # an answer broke off: the connection is reset once the client has all of what came
    LINGERING = 11  # our side is closed, and what comes is thrown away until the client has closed its own
    CLOSED = 12


_S = ClientState
#: state -> the states that may come next.
NEXT: Final = MappingProxyType(
    {
        _S.HANDSHAKE: {_S.IDLE, _S.CLOSING, _S.CLOSED},
        _S.IDLE: {_S.HEAD, _S.CLOSING, _S.CLOSED},
        _S.HEAD: {_S.BODY, _S.CLOSING, _S.CLOSED},
        _S.BODY: {_S.WAITING, _S.ANSWERING, _S.CLOSING, _S.BREAKING, _S.CLOSED},
        _S.WAITING: {_S.BODY, _S.CLOSING, _S.BREAKING, _S.CLOSED},
        _S.ANSWERING: {_S.FULL, _S.LAST, _S.IDLE, _S.AHEAD, _S.CLOSING, _S.BREAKING, _S.CLOSED},
        _S.FULL: {_S.AHEAD, _S.CLOSING, _S.BREAKING, _S.CLOSED},
        _S.LAST: {_S.AHEAD, _S.CLOSING, _S.BREAKING, _S.CLOSED},
        _S.AHEAD: {_S.HEAD, _S.CLOSING, _S.CLOSED},
        _S.CLOSING: {_S.LINGERING, _S.CLOSED},
        _S.BREAKING: {_S.CLOSED},
        _S.LINGERING: {_S.CLOSED},
        _S.CLOSED: frozenset[ClientState](),
    }
)
#: No request is being received or answered.
RESTING: Final = frozenset((_S.HANDSHAKE, _S.IDLE, _S.HEAD, _S.AHEAD))
#: The client has its turn later, so that its leaving is not come upon by reading.
UNREAD: Final = frozenset((_S.WAITING, _S.ANSWERING, _S.FULL, _S.LAST))
#: When there is no place left for new clients, who has been in one of these states for so long gives its own. Who has
#: just connected is about to send a request, which takes no longer than a long way, and a head comes in one piece.
PLACE_PATIENCE_NS: Final = MappingProxyType(
    {
        _S.HANDSHAKE: NS,
        _S.IDLE: 250_000_000,
        _S.AHEAD: NS,
        _S.HEAD: NS,
        _S.BODY: 10_000_000_000,
        _S.WAITING: 10_000_000_000,
        _S.CLOSING: NS,
        _S.BREAKING: NS,
        _S.LINGERING: 250_000_000,
    }
)


class ClientStateError(StateError):
    """A state that cannot come next."""

    def __init__(self, state: ClientState, wanted: ClientState) -> None:
        super().__init__(f"{wanted.name} after {state.name}")
        self.state = state
        self.wanted = wanted
