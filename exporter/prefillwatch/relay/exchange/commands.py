"""What an exchange wants done, in the order in which it is to be done."""

from __future__ import annotations

import enum
from typing import NamedTuple, TypeAlias

from prefillwatch.wire.tap import End, Kind, RequestHead, ResponseHead


class ToClient(NamedTuple):
    """Send these bytes, and hold what the socket does not take. If the client is gone, what follows is void."""

    data: bytes


class Tell(NamedTuple):
    """A record for the tap."""

    time_ns: int
    kind: Kind
    payload: bytes | RequestHead | ResponseHead | End = b""


class Connect(NamedTuple):
    """Find a connection to upstream and send the request on it, from its beginning.

    ``fresh``: not a kept one, which may be dead without a sign of it. ``inject``: ask for usage, where the request
    can be asked for it. ``again``: a kept connection was dead.
    """

    fresh: bool
    inject: bool
    again: bool = False


class RestInjection(NamedTuple):
    """Upstream refused what we had added to a request, and took it as the client had sent it."""


class Begin(NamedTuple):
    """The answer has begun: let go of what only the beginning needed. ``stream``: it may last for long."""

    stream: bool


class Leave(NamedTuple):
    """Nothing more is wanted of the connection to upstream.

    ``keep``: it is clean and may be used again; ``limit`` is upstream's Keep-Alive header. ``abort``: whatever upstream
    still does on it is in vain.
    """

    keep: bool = False
    limit: bytes = b""
    abort: bool = False


class Farewell(enum.Enum):
    """What becomes of the client's connection when an exchange is over."""

    NEXT = enum.auto()  # it waits for the next request
    CLOSE = enum.auto()  # it is closed, after the client could read all
    BREAK_OFF = enum.auto()  # it is closed, and the answer's framing shows that it is not complete
    RESET = enum.auto()  # it is reset: a close would look like the end of the answer
    GONE = enum.auto()  # the client has left


class Over(NamedTuple):
    """Let go of everything. ``words`` are what the client still gets."""

    farewell: Farewell
    words: bytes = b""


Command: TypeAlias = ToClient | Tell | Connect | RestInjection | Begin | Leave | Over
Commands: TypeAlias = list[Command]
