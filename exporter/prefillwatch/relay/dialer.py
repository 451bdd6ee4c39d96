"""Opening connections to upstream: name lookup, addresses in turn, TLS."""

from __future__ import annotations

import errno
import select
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from prefillwatch.relay.deadlines import Deadlines
from prefillwatch.relay.reactor import EDGES, Reactor, monotonic_ns
from prefillwatch.relay.settings import Upstream
from prefillwatch.relay.sockets import prepare
from prefillwatch.relay.upstream import UpstreamConnection
from prefillwatch.units import NS
from prefillwatch.wire.reasons import RelayReason

if TYPE_CHECKING:
    import ssl

    from prefillwatch.relay.tls import TlsSocket

Address = tuple[int, object]  # family, what connect() takes

_LOOKUP_TTL_NS: Final = 30 * NS
_NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
#: A unix socket whose backlog is full says so at once instead of making us wait.
_BACKLOG_RETRY_S: Final = 0.01


class Dialer:
    """Opens connections to one upstream. ``open`` counts those that are open, ``failures`` the attempts that failed."""

    def __init__(
        self,
        reactor: Reactor,
        upstream: Upstream,
        context: ssl.SSLContext | None,
        timeout_s: float,
        spare_descriptor: Callable[[], None] = lambda: None,
    ) -> None:
        """``spare_descriptor`` is called before one is taken."""
        self.reactor = reactor
        self.spare_descriptor = spare_descriptor
        self.upstream = upstream
        self.context = context
        self.open = 0
        self.failures = 0
        self.lookup = Lookup(reactor, upstream)
        self.limits = Deadlines[Dial](reactor, timeout_s, lambda dial: dial.fail(RelayReason.TIMEOUT))

    def dial(self, on_open: Callable[[UpstreamConnection], None], on_failure: Callable[[RelayReason], None]) -> Dial:
        """Begin to connect; one of the callbacks is called later, unless the dial is cancelled."""
        return Dial(self, on_open, on_failure)

    def count_close(self) -> None:
        self.open -= 1


class Dial:
    """One connection on its way to being open."""

    __slots__ = ("_addresses", "_dialer", "_early", "_on_failure", "_on_open", "_reactor", "_socket", "_tls")

    def __init__(
        self, dialer: Dialer, on_open: Callable[[UpstreamConnection], None], on_failure: Callable[[RelayReason], None]
    ) -> None:
        self._dialer = dialer
        self._reactor = dialer.reactor
        self._on_open: Callable[[UpstreamConnection], None] | None = on_open  # None: over
        self._on_failure = on_failure
        self._addresses: list[Address] = []
        self._socket: socket.socket | None = None
        self._tls: TlsSocket | None = None
        self._early = False
        dialer.limits.add(self)
        dialer.spare_descriptor()
        dialer.lookup.addresses(self._begin)

    def cancel(self) -> None:
        """The connection is not wanted any more."""
        self._over()
        self._drop_socket()

    def fail(self, reason: RelayReason) -> None:
        if self._on_open is None:
            return
        self._dialer.failures += reason is not RelayReason.NO_DESCRIPTORS  # which is not upstream's fault
        on_failure = self._on_failure
        self.cancel()
        self._reactor.guarded(partial(on_failure, reason))

    def _over(self) -> None:
        self._on_open = None
        self._on_failure = _nobody
        self._dialer.limits.discard(self)

    def _drop_socket(self) -> None:
        opened, self._socket, self._tls = self._socket, None, None
        if opened is not None:
            self._reactor.close(opened)

    def _begin(self, addresses: list[Address]) -> None:
        """These are upstream's addresses."""
        self._addresses = list(addresses)
        self._connect()

    def _connect(self) -> None:
        """To the first address that does not refuse at once; what comes of that goes to `_on_connecting`."""
        if self._on_open is None:
            return
        self._drop_socket()
        while self._addresses:
            family, address = self._addresses.pop(0)
            try:
                self._socket = opened = socket.socket(family, socket.SOCK_STREAM)
                prepare(opened)
                code = opened.connect_ex(address)  # type: ignore[arg-type]
            except OSError as error:  # or a path that is too long
                if error.errno in _NO_DESCRIPTOR:
                    self.fail(RelayReason.NO_DESCRIPTORS)
                    return
                code = error.errno or errno.EINVAL
            if code in (0, errno.EINPROGRESS):
                self._reactor.register_back(opened.fileno(), self._on_connecting, EDGES)
                return
            if code == errno.EAGAIN:
                self._addresses.insert(0, (family, address))
                self._reactor.call_later(_BACKLOG_RETRY_S, self._connect)
                return
            self._drop_socket()
        self.fail(RelayReason.CONNECT)

    def _on_connecting(self, events: int) -> None:
        opened = self._socket
        assert opened is not None
        if opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._connect()  # to the next
            return
        if not events & select.EPOLLOUT:
            return
        self._early = events != select.EPOLLOUT  # some servers speak first, to say that they are busy
        if self._dialer.context is None:
            self._succeed()
            return
        from prefillwatch.relay.tls import TlsSocket  # the ssl module costs memory where it is not used

        try:
            self._tls = TlsSocket(self._dialer.context, opened, self._dialer.upstream.host)
        except OSError:
            self._connect()
            return
        self._socket = self._tls.socket
        self._reactor.handlers[self._socket.fileno()] = self._on_handshake
        self._on_handshake(0)

    def _on_handshake(self, _events: int) -> None:
        assert self._tls is not None
        try:
            if self._tls.handshake():
                self._succeed()
        except OSError:
            self.fail(RelayReason.TLS)

    def _succeed(self) -> None:
        opened, on_open = self._socket, self._on_open
        assert opened is not None
        assert on_open is not None
        self._over()
        self._dialer.open += 1
        connection = UpstreamConnection(self._reactor, opened, self._tls, self._dialer.count_close)
        connection.may_hold_bytes |= self._early
        self._reactor.guarded(partial(on_open, connection))


class Lookup:
    """Addresses of upstream. Names are looked up in a thread and kept for a while, beyond it if a lookup fails."""

    def __init__(self, reactor: Reactor, upstream: Upstream) -> None:
        self._reactor = reactor
        self._upstream = upstream
        self._known: list[Address] = []
        self._stale_ns = 0
        self._waiting: list[Callable[[list[Address]], None]] = []
        if upstream.unix_path:
            self._known = [(socket.AF_UNIX, upstream.unix_path)]
        elif upstream.is_numeric:
            self._known = _look_up(upstream)

    def addresses(self, found: Callable[[list[Address]], None]) -> None:
        """Call ``found`` soon, with nothing where there are none."""
        if self._upstream.is_numeric or monotonic_ns() < self._stale_ns:
            self._reactor.soon_back(lambda: found(self._known))
            return
        self._waiting.append(found)
        if len(self._waiting) == 1:
            threading.Thread(target=self._work, name="lookup", daemon=True).start()

    def _work(self) -> None:
        addresses = _look_up(self._upstream)
        self._reactor.call_from_thread(lambda: self._done(addresses))

    def _done(self, addresses: list[Address]) -> None:
        if addresses:
            self._known = addresses
            self._stale_ns = monotonic_ns() + _LOOKUP_TTL_NS
        waiting, self._waiting = self._waiting, []
        for found in waiting:
            found(self._known)


def _look_up(upstream: Upstream) -> list[Address]:
    try:
        answers = socket.getaddrinfo(upstream.host, upstream.port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [(family, address) for family, _, _, _, address in answers]


def _nobody(reason: RelayReason) -> None:
    """Stands in for a callback that must not be called any more."""
