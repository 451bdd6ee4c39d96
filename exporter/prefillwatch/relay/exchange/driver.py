"""Carries out what an exchange wants, on sockets, and reports to it what came of that.

Bytes of most tokens never reach the exchange's core: while whole chunks of an observed answer stream through, the
handler of upstream's socket is the fast lane, `Exchange._on_token`.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any, Final

from prefillwatch.relay.exchange.commands import Begin, Commands, Connect, Leave, Over, RestInjection, Tell, ToClient
from prefillwatch.relay.exchange.core import ExchangeCore
from prefillwatch.relay.exchange.state import AWAITING_UPSTREAM, HELD_UP, PASSING, READING, State
from prefillwatch.relay.framing import whole_chunk_prefixes
from prefillwatch.relay.reactor import ENDED, QUIET, monotonic_ns
from prefillwatch.relay.sending import Kept, Sending
from prefillwatch.wire.tap import Kind

if TYPE_CHECKING:
    from prefillwatch.relay.bodies import Claim
    from prefillwatch.relay.dialer import Dial
    from prefillwatch.relay.http_head import Request
    from prefillwatch.relay.ports import Client, ExchangeServices
    from prefillwatch.relay.request_body import RequestBody
    from prefillwatch.relay.upstream import UpstreamConnection
    from prefillwatch.wire.reasons import RelayReason

#: A token's read; longer ones take the general way.
_TOKEN_READ: Final = 16 * 1024
#: Larger blocks than 128 KiB would teach malloc to keep memory that is not needed any more.
_READ: Final = 64 * 1024
_PREFIXES: Final = whole_chunk_prefixes(4096)


class Exchange:
    """One exchange on its sockets. The client's connection outlives it, the upstream's may.

    ``last_read_ns`` is when upstream last sent something, or its turn began.
    """

    __slots__ = (
        "_add_record", "_data_key", "_dial", "_end_announced", "_recv", "_send", "_sending", "_streams",
        "_upstream", "client", "core", "last_read_ns", "relay", "stream",
    )  # fmt: skip

    def __init__(self, relay: ExchangeServices, client: Client, request: Request) -> None:
        self.relay = relay
        self.client = client
        self.core = ExchangeCore(request, relay.policy)
        self.stream = relay.next_stream()
        self.last_read_ns = 0
        self._sending: Sending | None = None  # None: not begun, or done with
        self._streams = False  # the answer is a stream: its tokens go before all that can wait
        self._dial: Dial | None = None
        self._upstream: UpstreamConnection | None = None
        self._end_announced = False  # upstream's; it will not be again, so reading goes on up to it
        self._data_key = self.stream << 8 | Kind.DATA
        self._add_record = relay.tap.add_record
        self._send = client.send
        self._recv: Any = None

    # --- What the client's connection reports ---

    def open(self, first_ns: int) -> None:
        """The head is known; ``first_ns`` is when its first byte was read."""
        self.relay.add_exchange(self)
        self._run(self.core.open(first_ns))

    def tap_body(self, payload: bytes, now: int) -> None:
        """Body bytes came in."""
        self._run(self.core.body(payload, now))

    def begin(self, body: RequestBody, now: int, claim: Claim | None) -> None:
        """The request is complete: send it."""
        self.last_read_ns = now
        relay = self.relay
        kept = Kept(body, claim, relay.bodies)
        hop = relay.hop(self.client)
        self._sending = Sending(self.core.request, kept, relay.authority, keep_host=relay.keep_host, hop=hop)
        self._run(self.core.complete(body.size, now))

    def reject(self, status: int, reason: RelayReason, message: str) -> None:
        """Answer without upstream."""
        self._run(self.core.refuse(status, reason, message, monotonic_ns()))

    def client_unblocked(self) -> None:
        """The client has taken all that was held."""
        if self.core.state not in HELD_UP:
            return
        self.last_read_ns = now = monotonic_ns()  # the silence until here was not upstream's
        self._run(self.core.client_free(now))
        if self._upstream is not None:
            self.relay.reactor.soon_back(self._read)

    def client_ended(self) -> None:
        """The client sends nothing more: it has left, or waits for its answer."""
        self._run(self.core.client_ended(monotonic_ns()))

    def client_gone(self, reason: RelayReason | None = None) -> None:
        """The client has left, or was left for a reason."""
        self._run(self.core.client_gone(monotonic_ns(), reason))

    # --- What the relay wants ---

    @property
    def heard_ns(self) -> int:
        """When upstream last sent something; 0: never."""
        return self.last_read_ns if self.last_read_ns > self.core.received_ns else 0

    def acknowledge_late_again(self, now: int) -> None:
        """Once a second."""
        if self._upstream is not None:
            self._upstream.acknowledge_late_again(now)

    def end_if_silent(self, since_ns: int) -> None:
        """Break off if upstream's turn has brought nothing since then."""
        if self.core.state in AWAITING_UPSTREAM and self.last_read_ns < since_ns:
            self._run(self.core.silent(monotonic_ns()))

    def announce(self) -> None:
        """Report this exchange to a new observer, if it is still running."""
        if self.core.state is not State.DONE:
            self._run(self.core.announce(monotonic_ns(), self.read_ns))

    @property
    def read_ns(self) -> int:
        """When bytes of the answer's body came last; 0: none did."""
        return self.last_read_ns if self.core.answer is not None and self.last_read_ns > self.core.answered_ns else 0

    def hide(self) -> None:
        """Show no more of the answer to the observer, which cannot read it."""
        self.core.hide()
        if self.core.state is State.STREAMING:
            self._choose_lane()

    def cut(self) -> None:
        """The time for draining is over."""
        if self.core.state is not State.DONE:
            self._run(self.core.cut(monotonic_ns()))

    def crash(self) -> None:
        """A fault of ours: end this exchange, whatever it was in the middle of."""
        if self.core.state is not State.DONE:
            self._run(self.core.failed(monotonic_ns()))
        else:  # it failed while it was ending
            self._let_go()
            self.client.abort()

    # --- Towards upstream ---

    def _connected(self, connection: UpstreamConnection) -> None:
        sending = self._sending
        assert sending is not None
        self._dial = None
        self._end_announced = connection.may_hold_bytes
        self._upstream = connection
        self._recv = connection.recv
        self.relay.reactor.handlers[connection.fd] = self._on_upstream
        self.relay.reactor.to_back(connection.fd)
        self._run(self.core.connected(injected=sending.injected))
        if self._end_announced:
            self.relay.reactor.soon_back(self._read)
        self._pump()

    def _unreachable(self, reason: RelayReason) -> None:
        self._dial = None
        self._run(self.core.unreachable(reason, monotonic_ns()))

    def _pump(self) -> None:
        """Hand over what upstream takes of the request."""
        upstream, sending = self._upstream, self._sending
        if upstream is None or sending is None or not sending.waits:
            return
        try:
            again = sending.pump(upstream.send)
        except OSError:  # an answer may still be there to read
            sending.stop()
            self._read()
            return
        if again:
            self.relay.reactor.soon_back(self._pump)
        elif sending.sent_ns:
            self._run(self.core.sent(sending.sent_ns))
            if upstream.reused and self.core.answer is None:
                self.relay.repeatable.add(sending)
            else:
                sending.forget()

    # --- From upstream ---

    def _on_token(self, events: int) -> None:
        """The hot path: an event of upstream's socket while chunks of an observed answer stream through.

        What a slot holds is fetched before it is called: calling it in one expression takes a look-up as for a method,
        which the interpreter cannot speed up for slots.
        """
        if events != QUIET:
            self._on_upstream(events)
            return
        recv, send = self._recv, self._send
        try:
            data = recv(_TOKEN_READ)
        except OSError as error:
            self._read_failed(error)
            return
        now = monotonic_ns()
        size = len(data)
        prefix = _PREFIXES.get(size)
        if prefix is None or not data.startswith(prefix) or data[-2:] != b"\r\n":
            self._received(data, now, more=size == _TOKEN_READ)
            return
        try:
            sent = send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.client.gone()
            return
        add_time, add_key, add_payload = self._add_record
        add_time(now)
        add_key(self._data_key)
        add_payload(data[len(prefix) : -2])
        self.last_read_ns = now
        if sent != size:
            self.client.hold(data, sent)
            self._pause()

    def _on_upstream(self, events: int) -> None:
        if events & select.EPOLLOUT:
            self._pump()
        if events & ENDED:
            self._end_announced = True
        if events & ~select.EPOLLOUT:
            self._read()

    def _read(self) -> None:
        upstream = self._upstream
        if upstream is None or self.core.state not in READING:
            return
        if self.core.is_behind:
            self.relay.reactor.soon_back(self._read)
            self._take(b"", monotonic_ns())
            return
        try:
            data = self._recv(_READ)
        except OSError as error:
            self._read_failed(error)
            return
        self._received(data, monotonic_ns(), more=len(data) == _READ or self._end_announced or upstream.is_tls)

    def _read_failed(self, error: OSError) -> None:
        if not isinstance(error, BlockingIOError):
            # A reset is how a kernel answers bytes for a connection that is closed, or was closed with bytes unread.
            self._upstream_ended(clean=False, unread=isinstance(error, ConnectionResetError | BrokenPipeError))

    def _received(self, data: bytes, now: int, *, more: bool) -> None:
        """Bytes of the answer, or their end. ``more``: the kernel may hold more and will not say so again."""
        if not data:
            self._upstream_ended(clean=True, unread=False)
            return
        if more:
            self.relay.reactor.soon_back(self._read)
        self.last_read_ns = now
        self._take(data, now)
        self._choose_place(len(data))
        if self.core.is_behind and not more:
            self.relay.reactor.soon_back(self._read)

    def _take(self, data: bytes, now: int) -> None:
        may_resend = self._sending is not None and self._sending.is_whole
        self._run(self.core.read(data, now, may_resend=may_resend))
        self._settle()

    def _upstream_ended(self, *, clean: bool, unread: bool) -> None:
        """Upstream closed the connection, or it broke."""
        upstream, sending = self._upstream, self._sending
        may_repeat = False
        if upstream is not None and sending is not None and upstream.reused:
            may_repeat = sending.may_repeat()
            unread |= not sending.sent_ns or not upstream.has_taken_all()
        self._run(self.core.upstream_gone(monotonic_ns(), clean=clean, may_repeat=may_repeat, unread=unread))
        self._settle()

    def _settle(self) -> None:
        """After bytes were passed on: has the client's socket taken them, and which way do the next ones take?"""
        state = self.core.state
        if state not in PASSING:
            return
        if self.client.unsent is not None:
            self._pause()
        elif state is State.ENDING:
            self._run(self.core.client_free(monotonic_ns()))
        elif state is State.STREAMING:
            self._choose_lane()

    def _choose_place(self, size: int) -> None:
        """Tokens go first. What comes in whole blocks is no generated text, and can wait for those that are."""
        if self._upstream is None or not self._streams:
            return
        if size == _READ:
            self.relay.reactor.to_back(self._upstream.fd)
        else:
            self.relay.reactor.to_front(self._upstream.fd)

    def _pause(self) -> None:
        """The client's socket is full: read no further before it has taken what we hold."""
        self._run(self.core.client_blocked(monotonic_ns()))
        if self._upstream is not None:
            self.relay.reactor.handlers[self._upstream.fd] = self._on_upstream

    def _choose_lane(self) -> None:
        upstream, sending = self._upstream, self._sending
        assert upstream is not None
        uploads = sending is not None and sending.waits  # room for more of it is reported beside a token, too
        fast = self.core.streams_plainly and not upstream.is_tls and not uploads
        self.relay.reactor.handlers[upstream.fd] = self._on_token if fast else self._on_upstream

    # --- Commands ---

    def _run(self, commands: Commands) -> None:
        """Carry them out; those behind bytes that find the client gone are void."""
        for command in commands:
            if not isinstance(command, ToClient):
                _CARRY_OUT[type(command)](self, command)
            elif not self.client.write(command.data):
                self.client.gone()
                return

    def _tell(self, command: Tell) -> None:
        tap = self.relay.tap
        time_ns, kind, payload = command
        if not isinstance(payload, bytes):
            tap.tell(time_ns, self.stream, kind, payload)
        elif kind is Kind.DATA:
            tap.add_data(time_ns, self.stream, payload)
        elif kind is Kind.REQUEST_BODY:
            tap.add_body(time_ns, self.stream, payload)
        elif kind is Kind.SKIPPED:
            tap.skip(time_ns, self.stream, int.from_bytes(payload, "little"))
        else:
            tap.add(time_ns, self.stream, kind, payload)

    def _connect(self, command: Connect) -> None:
        sending, relay = self._sending, self.relay
        assert sending is not None
        relay.retries += command.again
        sending.start(inject=command.inject)
        connection = None if command.fresh else relay.pool.take()
        if connection is None:
            self._dial = relay.dialer.dial(self._connected, self._unreachable)
        else:
            self._connected(connection)

    def _rest_injection(self, _command: RestInjection) -> None:
        self.relay.rest_injection()

    def _begin_answer(self, command: Begin) -> None:
        """A stream may last for long; what only its beginning needed does not have to."""
        sending = self._sending
        assert sending is not None
        self.relay.repeatable.discard(sending)
        sending.forget()
        if sending.sent_ns:
            self._sending = None
            sending.drop()
            self.core.request.headers.clear()
        if command.stream and self._upstream is not None:
            self._upstream.acknowledge_late(self.last_read_ns)
            self._streams = True

    def _leave(self, command: Leave) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is None:
            return
        half_sent = self._sending is not None and not self._sending.sent_ns
        if command.abort or half_sent:  # what is left of the request must not be taken for another one
            upstream.abort()
        elif command.keep:
            self.relay.pool.release(upstream, command.limit)
        else:
            upstream.close()

    def _end(self, command: Over) -> None:
        self._let_go()
        self.client.exchange_over(command.farewell, command.words)

    def _let_go(self) -> None:
        """Of all that is not the client's; calling twice does no harm."""
        self.relay.remove_exchange(self)
        sending, self._sending = self._sending, None
        if sending is not None:
            self.relay.repeatable.discard(sending)
            sending.drop()
        dial, self._dial = self._dial, None
        if dial is not None:
            dial.cancel()
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.abort()


_CARRY_OUT: Final[dict[type, Any]] = {
    Tell: Exchange._tell,
    Connect: Exchange._connect,
    RestInjection: Exchange._rest_injection,
    Begin: Exchange._begin_answer,
    Leave: Exchange._leave,
    Over: Exchange._end,
}
