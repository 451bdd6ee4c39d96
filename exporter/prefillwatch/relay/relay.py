"""A relay process: its listeners, everything that is in flight, and how it ends."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from prefillwatch.contract.buckets import LAG_BOUNDS
from prefillwatch.relay.addresses import Addresses
from prefillwatch.relay.bodies import Bodies, BodyShares
from prefillwatch.relay.client import ClientConnection
from prefillwatch.relay.client_state import PLACE_PATIENCE_NS
from prefillwatch.relay.deadlines import Deadlines
from prefillwatch.relay.dialer import Dialer
from prefillwatch.relay.exchange.core import Policy
from prefillwatch.relay.exchange.driver import Exchange
from prefillwatch.relay.hops import Hop, peer_of
from prefillwatch.relay.http_head import Request
from prefillwatch.relay.observed_head import sender_by
from prefillwatch.relay.ports import Client
from prefillwatch.relay.reactor import Handler, Reactor, monotonic_ns, raise_descriptor_limit
from prefillwatch.relay.room import most_clients
from prefillwatch.relay.sending import REPEAT_WITHIN_S, Sending
from prefillwatch.relay.settings import RelaySettings, parse_upstream
from prefillwatch.relay.sockets import prepare
from prefillwatch.relay.supervisor_line import Pulse, SupervisorLine
from prefillwatch.relay.tap_writer import TapWriter
from prefillwatch.relay.unsent import Unsent
from prefillwatch.relay.upstream import Pool
from prefillwatch.units import NS
from prefillwatch.wire.faults import place_of
from prefillwatch.wire.in_flight import SLICE, Ask, InFlight, encode_in_flight, spread
from prefillwatch.wire.tap import Hello, Kind, RelayStats

#: A connection that we close waits this long for the client to close its side.
_LINGER_S: Final = 2.0
_SAME_SIGNAL_NS: Final = 500_000_000
_STATS_S: Final = 1.0
#: As many handshakes begin before others have their turn.
_ACCEPTS_AT_ONCE: Final = 16
#: Errors of accept() that are about that one connection. Any other would come again at once.
_CLIENT_LEFT: Final = frozenset((errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ETIMEDOUT, errno.ENETUNREACH))
#: Without a free descriptor, for one, accepting is tried again after this long.
_ACCEPT_PAUSE_S: Final = 0.1
#: A relay whose accepting has failed for as long does not accept. A place for a new client is found sooner, if at all.
_NOT_ACCEPTING_NS: Final = 2_000_000_000
#: Clients that are asked for their place, for each that wants one.
_LOOKED_AT: Final = 16
_LOOP_WORDS: Final = "upstream leads back to this prefillwatch; name the server behind it as upstream"
#: Objects since the last collection for which it is worth while to use an idle moment: a millisecond or two.
_COLLECT_IDLE: Final = 10_000
#: Work on all exchanges or clients is done in slices, so that no token waits for the whole of it.
_SLICE: Final = 32
#: A server that refused what `usage: inject` adds is asked anew after this long: it may be another version by then. If
#: it is not, one request in this time goes twice.
INJECTION_RESTS_S: Final = 600.0
_USAGE_REFUSED: Final = (
    "upstream refuses requests that ask for usage (usage: inject) and takes them without it; "
    f"they are left as they are, and every {INJECTION_RESTS_S / 60:.0f} minutes one is tried"
)

T = TypeVar("T")


class Relay:
    """Serves the listeners until it has drained; `start` it, run its reactor."""

    def __init__(self, settings: RelaySettings) -> None:
        """Raises OSError for TLS files and descriptors that cannot be used."""
        self.settings = settings
        self.reactor = reactor = Reactor(self._on_crash)
        upstream = parse_upstream(settings.upstream)
        self.authority = upstream.authority.encode()
        keep_host = settings.preserve_host
        self.keep_host = not upstream.tls if keep_host is None else keep_host
        self.tap = TapWriter(reactor, settings.tap_fd, settings.index)
        self.pool = Pool(reactor, settings.upstream_keepalive)
        self.bodies = Bodies(
            BodyShares.of(settings.max_bodies, settings.relays, settings.max_body),
            settings.request_timeout,
            monotonic_ns,
        )
        self.unsent = Unsent[ClientConnection](
            reactor, settings.client_write_timeout, ClientConnection.takes_nothing, ClientConnection.leave
        )
        self.most_clients = most_clients(raise_descriptor_limit())
        if settings.max_clients:
            self.most_clients = min(self.most_clients, -(-settings.max_clients // settings.relays))
        self.addresses = Addresses(settings.max_clients_per_address)
        self.places_given = 0  # clients that had to leave for others
        self._hop = Hop(settings.forwarded, name=settings.name.encode())
        self._loops = 0
        self._listener_tls = None
        upstream_tls = None
        if settings.tls_fd >= 0 or upstream.tls:
            from prefillwatch.relay import tls  # the ssl module costs memory where it is not used

            self._listener_tls = tls.ListenerTls(settings.tls_fd) if settings.tls_fd >= 0 else None
            upstream_tls = tls.upstream_context(settings, upstream)
        self.dialer = Dialer(reactor, upstream, upstream_tls, settings.connect_timeout, self._spare_descriptor)
        self.client_idle = Deadlines[ClientConnection](reactor, settings.client_idle_timeout, ClientConnection.abort)
        self.receiving = Deadlines[ClientConnection](reactor, settings.request_timeout, ClientConnection.late)
        self.flushing = Deadlines[ClientConnection](reactor, settings.client_write_timeout, ClientConnection.give_up)
        self.lingering = Deadlines[ClientConnection](reactor, _LINGER_S, ClientConnection.abort)
        self.repeatable = Deadlines[Sending](reactor, REPEAT_WITHIN_S, Sending.forget)
        self.clients: set[ClientConnection] = set()
        self.exchanges: dict[int, Exchange] = {}
        self._digest = 0  # of their ids
        self.tap.on_ask = self._answer
        self.retries = 0
        self.usage_refused = 0  # requests that upstream took only without what we had added
        self.policy = Policy(inject_usage=settings.usage == "inject", wall_clock=time.time, sender=sender_by(settings))
        self._drained_ns = 0
        self._last_stream = 0
        self._listeners = [socket.socket(fileno=fd) for fd in settings.listen_fds]
        self._covered: Sequence[socket.socket] = ()  # listeners of relays that are away
        self._refused_ns = 0  # when accepting failed last
        self._refusing_ns = 0  # since when it has; 0: it has succeeded since
        self._heard_ns = 0  # the last byte of the answers that are over
        self._beat_ns = monotonic_ns()  # the last sign of life
        self._line: SupervisorLine | None = None
        if settings.supervisor_fd >= 0:
            self._line = SupervisorLine(reactor, settings.supervisor_fd, self.cover)
        self._parent = os.getppid()

    @property
    def draining(self) -> bool:
        return self.policy.draining

    # --- Begin and end ---

    def start(self) -> None:
        """Begin to accept connections."""
        self._listen(self._listeners)
        self._say_hello()
        self._tick()

    def _listen(self, listeners: Sequence[socket.socket]) -> None:
        for listener in listeners:
            listener.setblocking(False)
            self.reactor.register_back(listener.fileno(), self._acceptor(listener), select.EPOLLIN)

    def cover(self, listeners: Sequence[socket.socket]) -> None:
        """Accept on these listeners of other relays too, and no longer on those named before."""
        for listener in self._covered:
            self._leave(listener)
        self._covered = listeners
        if self.draining:
            self._close_listeners()
        else:
            self._listen(listeners)

    def drain(self) -> None:
        """Take nothing new, let answers finish, then stop. A second call, some time later, cuts what still runs."""
        now = monotonic_ns()
        if self.draining:
            # Who ends a whole group of processes signals us twice: directly, and through the supervisor.
            if now - self._drained_ns > _SAME_SIGNAL_NS:
                self.cut()
            return
        self.policy.draining = True
        self._drained_ns = now
        self._close_listeners()
        self.reactor.soon(self._close_idle)
        self.reactor.call_later(self.settings.drain_timeout, self.cut)

    def _close_listeners(self) -> None:
        for listener in (*self._listeners, *self._covered):
            self._accept(listener, limit=sys.maxsize)  # they are connected already as far as they know
            self._leave(listener)
        self._listeners, self._covered = [], ()

    def _leave(self, listener: socket.socket) -> None:
        self.reactor.forget(listener.fileno())  # closing does not: others have the same listener
        self.reactor.close(listener)

    def announce(self) -> None:
        """A new observer is there: tell it what is running."""
        self.tap.flush()
        self.tap.forget_bodies()
        self._say_hello()
        self._in_slices(Exchange.announce, list(self.exchanges.values()))

    def renew_certificate(self) -> None:
        """The supervisor has put another one down."""
        if self._listener_tls is not None:
            self._listener_tls.renew()

    def _close_idle(self) -> None:
        self.pool.close()
        self._in_slices(ClientConnection.drain, list(self.clients))
        self._stop_when_drained()

    def _in_slices(self, act: Callable[[T], None], items: list[T], start: int = 0) -> None:
        """Do something with each item, a few of them per turn."""
        end = start + _SLICE
        for item in items[start:end]:
            self.reactor.guarded(partial(act, item))
        if end < len(items):
            self.reactor.soon(lambda: self._in_slices(act, items, end))

    def cut(self) -> None:
        """End what still runs, recognizably unfinished."""
        for exchange in list(self.exchanges.values()):
            self.reactor.guarded(exchange.cut)
        for client in list(self.clients):
            client.abort()
        self._stop_when_drained()

    def _stop_when_drained(self) -> None:
        if self.draining and not self.clients and not self.exchanges:
            self.pool.close()
            self._tell_stats(monotonic_ns())
            self.tap.close()
            if self._line is not None:
                self._line.close()
                self._line = None
            self.reactor.stop()

    # --- Clients ---

    def _acceptor(self, listener: socket.socket) -> Handler:
        return lambda _events: self._accept(listener, _ACCEPTS_AT_ONCE)

    def _accept(self, listener: socket.socket, limit: int) -> None:
        for _ in range(limit):
            if len(self.clients) >= self.most_clients and _waits(listener) and not self._make_place():
                self._pause_accepting(listener)
                return
            try:
                opened, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _CLIENT_LEFT:
                    self._pause_accepting(listener)
                    return
                continue
            peer = peer_of(address)
            if self.addresses.admit(peer):
                self._welcome(opened, peer)
            else:
                opened.close()

    def _make_place(self) -> bool:
        """Have the client leave that can best: one that is idle, or lingers, or has not managed to send its request."""
        for deadlines in (self.client_idle, self.lingering, self.flushing, self.receiving):
            for client in deadlines.longest_waiting(_LOOKED_AT):
                if deadlines.waited_ns(client) >= PLACE_PATIENCE_NS[client.state]:
                    self.places_given += 1
                    client.give_place()
                    return True
        return False

    def _spare_descriptor(self) -> None:
        """For a connection to upstream: every client may have one, beside none that is idle."""
        if self.dialer.open + len(self.dialer.limits) > self.most_clients:
            self.pool.drop_oldest()

    def _welcome(self, opened: socket.socket, peer: bytes) -> None:
        try:
            prepare(opened)
            tls = None
            if self._listener_tls is not None:
                from prefillwatch.relay.tls import TlsSocket  # see __init__

                tls = TlsSocket(self._listener_tls.context, opened, None)
            self._refusing_ns = 0
            self.clients.add(ClientConnection(self, opened, tls, peer))
        except OSError:
            self.addresses.leave(peer)
            opened.close()

    def _pause_accepting(self, listener: socket.socket) -> None:
        self._refused_ns = monotonic_ns()
        self._refusing_ns = self._refusing_ns or self._refused_ns
        fd = listener.fileno()
        self.reactor.forget(fd)

        def resume() -> None:
            if listener.fileno() == fd and not self.draining:  # else it was closed meanwhile
                self.reactor.register_back(fd, self._acceptor(listener), select.EPOLLIN)

        self.reactor.call_later(_ACCEPT_PAUSE_S, resume)

    def forget_client(self, client: ClientConnection) -> None:
        """Its connection is closed."""
        self.clients.discard(client)
        self.addresses.leave(client.peer)
        if self.draining:
            self._stop_when_drained()

    def hop(self, client: Client) -> Hop:
        """How this client's requests came here."""
        return Hop(self._hop.forwarded, client.peer, client.is_tls, self._hop.name)

    def was_here(self, request: Request) -> bool:
        """Whether the request passed through us before. Logged the first time: the configuration has to change."""
        if not self._hop.was_here(request):
            return False
        self._loops += 1
        if self._loops == 1:
            sys.stderr.write(f"prefillwatch relay: a request came back to us: {_LOOP_WORDS}\n")
        return True

    # --- Exchanges ---

    def new_exchange(self, client: Client, request: Request) -> Exchange:
        return Exchange(self, client, request)

    def rest_injection(self) -> None:
        self.usage_refused += 1
        if self.usage_refused == 1:
            sys.stderr.write(f"prefillwatch relay: {_USAGE_REFUSED}\n")
        if self.policy.inject_usage:
            self.policy.inject_usage = False
            self.reactor.call_later(INJECTION_RESTS_S, self._inject_again)

    def _inject_again(self) -> None:
        self.policy.inject_usage = True

    def next_stream(self) -> int:
        self._last_stream += 1
        return self._last_stream

    def add_exchange(self, exchange: Exchange) -> None:
        self.exchanges[exchange.stream] = exchange
        self._digest ^= spread(exchange.stream)
        self.tap.keep_ticking = True

    def remove_exchange(self, exchange: Exchange) -> None:
        if self.exchanges.pop(exchange.stream, None) is not None:
            self._digest ^= spread(exchange.stream)
            self._heard_ns = max(self._heard_ns, exchange.heard_ns)
        self.tap.keep_ticking = bool(self.exchanges)

    # --- What the observer learns of ourselves ---

    def _say_hello(self) -> None:
        self.tap.tell(monotonic_ns(), 0, Kind.HELLO, Hello(self.settings.index, os.getpid()))

    def _tick(self) -> None:
        now = monotonic_ns()
        self._tell_stats(now)
        self._beat(now)
        self.bodies.tick()
        self._in_slices(lambda exchange: exchange.acknowledge_late_again(now), list(self.exchanges.values()))
        if self.settings.idle_limit:
            since_ns = now - int(self.settings.idle_limit * NS)
            self._in_slices(lambda exchange: exchange.end_if_silent(since_ns), list(self.exchanges.values()))
        if not self.exchanges and gc.get_count()[0] > _COLLECT_IDLE:
            gc.collect()
        if os.getppid() != self._parent and not self.draining:
            self.drain()  # the supervisor is gone, and with it all who could stop or restart us
        self.reactor.call_later(_STATS_S, self._tick)

    def _beat(self, now: int) -> None:
        """Show the supervisor that we live, and what it cannot know: whether upstream answers."""
        if self._line is None:
            return
        since, self._beat_ns = self._beat_ns, now
        hearing = self._heard_ns >= since or any(each.heard_ns >= since for each in self.exchanges.values())
        refuses = self._refusing_ns and now - self._refusing_ns > _NOT_ACCEPTING_NS
        accepting = not refuses or now - self._refused_ns > _NOT_ACCEPTING_NS  # else no client has tried since
        self._line.beat(Pulse(accepting=accepting, hearing=hearing, failures=self.dialer.failures))

    def _tell_stats(self, now: int) -> None:
        stats = RelayStats(
            client_connections=len(self.clients),
            upstream_connections=self.dialer.open,
            idle_upstream_connections=len(self.pool),
            exchanges=len(self.exchanges),
            lag_bounds=LAG_BOUNDS,
            lag_counts=tuple(self.tap.lag.counts),
            lag_sum=self.tap.lag.sum,
            retries=self.retries,
            upstream_connect_failures=self.dialer.failures,
            usage_refused=self.usage_refused,
            usage_rests=self.settings.usage == "inject" and not self.policy.inject_usage,
            request_bytes=self.bodies.held,
            unsent_bytes=self.unsent.size,
            most_clients=self.most_clients,
            places_given=self.places_given,
            turned_away=self.addresses.turned_away,
            digest=self._digest,
            skipped_bytes=self.tap.skipped_bytes,
        )
        self.tap.tell(now, 0, Kind.STATS, stats)

    def _answer(self, ask: Ask, streams: Sequence[int]) -> None:
        """The observer wants something."""
        asked = [exchange for exchange in map(self.exchanges.get, streams) if exchange is not None]
        if ask is Ask.REPORT:
            self._in_slices(Exchange.announce, asked)
        elif ask is Ask.STOP:
            for exchange in asked:
                exchange.hide()
        else:
            self._list(0, sorted(self.exchanges), self._last_stream)

    def _list(self, after: int, streams: Sequence[int], last: int) -> None:
        """Tell what is in flight of the ids above ``after``, a slice per turn; later ones than ``last`` were told to
        this observer already."""
        part, rest = streams[:SLICE], streams[SLICE:]
        until = part[-1] if rest else last
        found = [exchange for exchange in map(self.exchanges.get, part) if exchange is not None]
        told = InFlight(
            after,
            until,
            [exchange.stream for exchange in found],
            [exchange.read_ns for exchange in found],
            [exchange.core.stage for exchange in found],
        )
        self.tap.add(monotonic_ns(), 0, Kind.IN_FLIGHT, encode_in_flight(told))
        if rest:
            self.reactor.soon(lambda: self._list(until, rest, last))

    def _on_crash(self, callback: Handler | Callable[[], None], error: Exception) -> None:
        """A fault of ours: report where, not with which data, and end only what it happened in."""
        sys.stderr.write(f"prefillwatch relay: {place_of(error)}\n")
        for owner in _owners(callback):
            if isinstance(owner, Exchange | ClientConnection):
                with contextlib.suppress(Exception):
                    owner.crash()


def _owners(callback: object) -> tuple[object, ...]:
    """What a callback is about: the object of a method, and what it was bound to."""
    if isinstance(callback, partial):
        return (*_owners(callback.func), *callback.args)
    return (getattr(callback, "__self__", None),)


def _waits(listener: socket.socket) -> bool:
    """Whether a client waits to be accepted."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    return bool(poll.poll(0))
