"""Connections to upstream: the idle ones, and what a connection is."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from prefillwatch.relay.deadlines import Deadlines
from prefillwatch.relay.idle_limit import IdleLimit
from prefillwatch.relay.reactor import Reactor, monotonic_ns
from prefillwatch.relay.sockets import acknowledge_late, acknowledges_late, unacknowledged
from prefillwatch.units import NS

if TYPE_CHECKING:
    from prefillwatch.relay.tls import TlsSocket

#: close() then sends RST: the other side learns at once, and nothing that is still under way is delivered.
_RESET: Final = struct.pack("ii", 1, 0)
#: A server that announces its limit may count from a little earlier than we do.
_KEEP_ALIVE_MARGIN_S: Final = 1.0
#: Of a Keep-Alive header.
_MAX_PARAMETERS: Final = 8
_LATE_LASTS_NS: Final = NS


class ByteStream(Protocol):
    """What the data path needs of a socket, plain or TLS."""

    def recv(self, size: int, /) -> bytes: ...

    def send(self, data: Any, /) -> int: ...


class UpstreamConnection:
    """An open connection. It belongs to one exchange, or to the pool; its owner sets its handler.

    ``may_hold_bytes``: something may have come while it was not read, and the kernel will not report it again.
    """

    __slots__ = (
        "_late_lasts",
        "_late_since_ns",
        "_on_close",
        "_pool",
        "expires_ns",
        "fd",
        "idle_since_ns",
        "is_tls",
        "may_hold_bytes",
        "reactor",
        "recv",
        "reused",
        "send",
        "socket",
    )

    def __init__(
        self, reactor: Reactor, opened: socket.socket, tls: TlsSocket | None, on_close: Callable[[], None]
    ) -> None:
        stream: ByteStream = tls or opened
        self.reactor = reactor
        self.socket: socket.socket | None = tls.socket if tls else opened
        self.fd = opened.fileno() if tls is None else tls.socket.fileno()
        self.recv = stream.recv
        self.send = stream.send
        self.is_tls = tls is not None
        self.may_hold_bytes = self.is_tls
        self.reused = False
        self.expires_ns = 0
        self.idle_since_ns = 0
        self._late_since_ns = 0  # 0: reads are acknowledged as the kernel likes
        self._late_lasts = False
        self._on_close = on_close
        self._pool: Pool | None = None

    def close(self) -> None:
        """Close it; calling twice does no harm."""
        opened, self.socket = self.socket, None
        if opened is not None:
            self.reactor.close(opened)
            self._on_close()

    def abort(self) -> None:
        """Close it so that upstream stops working for it at once."""
        if self.socket is not None:
            abort_on_close(self.socket)
            self.close()

    def is_quiet(self) -> bool:
        """Whether nothing came unasked; the end of the connection counts as something."""
        try:
            self.recv(1)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def has_taken_all(self) -> bool:
        """Whether all that we sent has arrived on the other side, so that it may have been read there."""
        return self.socket is not None and not unacknowledged(self.socket)

    def acknowledge_late(self, now: int) -> None:
        """A stream begins: see `sockets.acknowledge_late`."""
        if self.socket is not None:
            acknowledge_late(self.socket)
            self._late_since_ns, self._late_lasts = now, False

    def acknowledge_late_again(self, now: int) -> None:
        """A silence may have ended it. Only where it had lasted for a second before: with a server that waits for our
        acknowledgements, or a slow one, it never does, and is not asked for again."""
        if self.socket is None or not self._late_since_ns or now - self._late_since_ns < _LATE_LASTS_NS:
            return
        if acknowledges_late(self.socket):
            self._late_lasts = True
        elif self._late_lasts:
            self.acknowledge_late(now)
        else:
            self._late_since_ns = 0

    def wait_in(self, pool: Pool) -> None:
        self._pool = pool
        self._late_since_ns = 0
        self.reactor.handlers[self.fd] = self._on_idle_event

    def _on_idle_event(self, events: int) -> None:
        if events != select.EPOLLOUT and not self.is_quiet() and self._pool is not None:
            self._pool.closed_by_upstream(self)


def abort_on_close(opened: socket.socket) -> None:
    with contextlib.suppress(OSError):
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


class Pool:
    """Idle connections, the youngest first: those at the bottom run into their limit while traffic is low."""

    def __init__(self, reactor: Reactor, keepalive_s: float) -> None:
        self._keepalive_s = keepalive_s
        self._upstreams = IdleLimit()
        self._idle: dict[UpstreamConnection, None] = {}  # in order of release
        self._limits = Deadlines[UpstreamConnection](reactor, keepalive_s, self.drop)

    def __len__(self) -> int:
        return len(self._idle)

    def take(self) -> UpstreamConnection | None:
        """A connection that is open as far as can be known."""
        now = monotonic_ns()
        while self._idle:
            connection, _ = self._idle.popitem()
            self._limits.discard(connection)
            if now < connection.expires_ns and connection.is_quiet():
                connection.reused = True
                connection.may_hold_bytes = False
                return connection
            if now < connection.expires_ns:
                self._upstreams.closed(now - connection.idle_since_ns, now)
            connection.close()
        return None

    def release(self, connection: UpstreamConnection, keep_alive: bytes) -> None:
        """Take a connection whose exchange is over. ``keep_alive`` is upstream's Keep-Alive header, if any."""
        now = monotonic_ns()
        announced = _announced_limit(keep_alive) - _KEEP_ALIVE_MARGIN_S
        seconds = min(self._keepalive_s, announced, self._upstreams.safe_s(now))
        if seconds <= 0:
            connection.close()
            return
        if not connection.is_quiet():
            self._upstreams.closed(0, now)
            connection.close()
            return
        connection.idle_since_ns = now
        connection.expires_ns = now + int(seconds * NS)
        connection.wait_in(self)
        self._idle[connection] = None
        self._limits.add(connection)

    def closed_by_upstream(self, connection: UpstreamConnection) -> None:
        """It was closed, or something came on it, while it was not in use."""
        now = monotonic_ns()
        self._upstreams.closed(now - connection.idle_since_ns, now)
        self.drop(connection)

    def drop(self, connection: UpstreamConnection) -> None:
        self._idle.pop(connection, None)
        self._limits.discard(connection)
        connection.close()

    def drop_oldest(self) -> None:
        """Close one, if there is any: its descriptor is needed."""
        if self._idle:
            self.drop(next(iter(self._idle)))

    def close(self) -> None:
        for connection in list(self._idle):
            self.drop(connection)


def _announced_limit(keep_alive: bytes) -> float:
    """Seconds in a header like ``timeout=5, max=100``; infinite without."""
    for parameter in keep_alive.split(b",", _MAX_PARAMETERS)[:_MAX_PARAMETERS]:
        name, _, value = parameter.partition(b"=")
        if name.strip().lower() == b"timeout" and value.strip().isdigit():
            return float(value)
    return float("inf")
