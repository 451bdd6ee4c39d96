"""A client's connection: requests are received here, one after the other, and answers leave through it."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from prefillwatch.relay.bodies import Claim, Loss
from prefillwatch.relay.bodies import State as Room
from prefillwatch.relay.client_state import NEXT, RESTING, UNREAD, ClientState, ClientStateError
from prefillwatch.relay.errors import BodyTooLargeError, HeadError, MessageError, WastefulChunksError
from prefillwatch.relay.exchange.commands import Farewell
from prefillwatch.relay.http_head import MAX_OPTIONS, MAX_REQUEST_HEAD, Request, end_of_head, parse_request
from prefillwatch.relay.reactor import EDGES, ENDED, monotonic_ns
from prefillwatch.relay.request_body import RequestBody
from prefillwatch.relay.sockets import limit_unacknowledged, unacknowledged
from prefillwatch.relay.upstream import ByteStream, abort_on_close
from prefillwatch.wire.reasons import RelayReason

if TYPE_CHECKING:
    from prefillwatch.relay.deadlines import Deadlines
    from prefillwatch.relay.ports import ClientServices, Exchange
    from prefillwatch.relay.tls import TlsSocket

_READ_BYTES: Final = 64 * 1024
#: Bytes of further requests that are taken in while one is being answered.
_MAX_PIPELINED: Final = 64 * 1024
#: Bytes thrown away after a refusal, so that the client gets to read it before the connection is reset.
_MAX_LINGERING: Final = 128 * 1024 * 1024
#: Before a reset, how often to look whether the client's machine has taken all; the kernel does not say.
_LOOK_AGAIN_S: Final = 0.02
_ENDLESS: Final = 2**63
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
#: No answer can reach the client any more.
_BROKEN: Final = select.EPOLLHUP | select.EPOLLERR


class ClientConnection:
    """Receives requests and holds what the client's socket did not take yet (at most about one read)."""

    __slots__ = (
        "_body", "_buffer", "_claim", "_early", "_end_announced", "_first_ns", "_lingered", "_searched", "_untaken",
        "exchange", "fd", "is_tls", "peer", "recv", "relay", "send", "socket", "state", "tls", "unsent",
    )  # fmt: skip

    def __init__(self, relay: ClientServices, opened: socket.socket, tls: TlsSocket | None, peer: bytes = b"") -> None:
        """``peer`` is the client's address, as X-Forwarded-For gives it."""
        self.relay = relay
        self.peer = peer
        self.tls = tls
        self.socket: socket.socket | None = tls.socket if tls else opened
        self.fd = self.socket.fileno()
        stream: ByteStream = tls or opened
        self.recv = stream.recv
        self.send = stream.send
        self.is_tls = tls is not None
        self.exchange: Exchange | None = None
        self.unsent: memoryview | None = None
        self.state = ClientState.IDLE if tls is None else ClientState.HANDSHAKE
        self._buffer = bytearray()  # of heads, and of requests that came early
        self._searched = 0
        self._first_ns = 0  # when the first byte of the request was read
        self._body: RequestBody | None = None
        self._claim: Claim | None = None  # for the bytes of the request that is being received
        self._untaken = 0  # bytes that its kernel had not taken when it last took some
        self._early = 0  # bytes that are counted as having come early
        self._end_announced = False  # the client's; it will not be again, so reading goes on up to it
        self._lingered = 0
        self._deadlines(self.state).add(self)  # type: ignore[union-attr]
        relay.reactor.register_back(self.fd, self._on_event if tls is None else self._on_handshake, EDGES)

    def _go(self, state: ClientState) -> None:
        """Go to the next state, and from the deadline of this one to the next one's. Raises ClientStateError."""
        if state not in NEXT[self.state]:
            raise ClientStateError(self.state, state)
        old, new = self._deadlines(self.state), self._deadlines(state)
        self.state = state
        if old is not new:
            if old is not None:
                old.discard(self)
            if new is not None:
                new.add(self)

    def _deadlines(self, state: ClientState) -> Deadlines[ClientConnection] | None:
        """Where connections in this state are timed; a deadline counts from the first of the states that share it."""
        if state is ClientState.IDLE:
            return self.relay.client_idle
        if state in _RECEIVING:
            return self.relay.receiving
        if state in _FLUSHING:
            return self.relay.flushing
        return self.relay.lingering if state is ClientState.LINGERING else None

    # --- Events ---

    def _on_event(self, events: int) -> None:
        if self.unsent is not None and events & select.EPOLLOUT:
            self._flush()
        newly_ended = events & ENDED and not self._end_announced
        if newly_ended:
            self._end_announced = True
        if events & _BROKEN and self.state in UNREAD:
            self.gone()
        elif newly_ended and self.state in _STOPPED:
            self._ended()
        elif events & (select.EPOLLIN | ENDED):
            self._read_on()

    def _on_handshake(self, _events: int) -> None:
        assert self.tls is not None
        try:
            if not self.tls.handshake():
                return
        except OSError:
            self.abort()
            return
        self._go(ClientState.IDLE)
        self.relay.reactor.handlers[self.fd] = self._on_event
        self._read_head()

    def _receive(self) -> bytes | None:
        """What can be read now; None when there is nothing, or the client has gone."""
        try:
            data = self.recv(_READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            self.gone()
            return None
        if not data:
            self._ended()
            return None
        if len(data) == _READ_BYTES or self._end_announced or self.is_tls:
            self.relay.reactor.soon_back(self._read_on)
        return data

    def _ended(self) -> None:
        """The client sends no more. It says so when it leaves, and some do when they wait for the answer to a request.

        Over TLS it is a goodbye.
        """
        if self.state in UNREAD and self.tls is None:
            if self.state is ClientState.ANSWERING:
                self._go(ClientState.LAST)
            exchange = self.exchange
            assert self.socket is not None
            assert exchange is not None
            limit_unacknowledged(self.socket, self.relay.settings.client_write_timeout)
            exchange.client_ended()
            if self.exchange is not exchange:  # it was taken to have left
                self.abort()
        elif self.state not in _FLUSHING:  # there, what is held may still be read
            self.gone()

    def _read_on(self) -> None:
        _READ[self.state](self)

    def _read_nothing(self) -> None:
        """What may be there stays in the kernel."""

    # --- A request ---

    def _read_head(self) -> None:
        data = self._receive()
        if data is not None:
            now = monotonic_ns()
            if self.state is ClientState.IDLE:
                self._begin_request(ClientState.HEAD, now)
            self._buffer += data
            self._take_head(now)

    def _begin_request(self, state: ClientState, now: int) -> None:
        self._first_ns = now
        self._go(state)

    def _take_head(self, now: int) -> None:
        buffer = self._buffer
        try:
            end = end_of_head(buffer, self._searched)
            if end < 0 and len(buffer) <= MAX_REQUEST_HEAD:
                self._searched = len(buffer)
                self._grow(len(buffer) - (self._claim.size if self._claim is not None else 0), MAX_REQUEST_HEAD)
                return
            if not 0 <= end <= MAX_REQUEST_HEAD:
                raise HeadError(
                    431, RelayReason.HEAD_TOO_LARGE, f"A request head has at most {MAX_REQUEST_HEAD} bytes."
                )
            request = parse_request(bytes(memoryview(buffer)[:end]))
        except HeadError as error:
            self._open_exchange(_unreadable(buffer))
            self.refuse(error.status, error.reason, str(error))
            return
        rest = bytes(memoryview(buffer)[end:])
        buffer.clear()
        self._searched = 0
        self._release()
        self._accept(request, rest, now)

    def _accept(self, request: Request, rest: bytes, now: int) -> None:
        exchange = self._open_exchange(request)
        self._go(ClientState.BODY)
        refusal = _LOOP if self.relay.was_here(request) else _refusal(request)
        if refusal is not None:
            self.refuse(*refusal)
            return
        try:
            self._body = RequestBody(request, self.relay.settings.max_body)
        except BodyTooLargeError:
            self._refuse_size()
            return
        if not self._body.done and not rest and request.expect_continue and not self.write(_CONTINUE):
            self.gone()
        if rest or self._body.done:
            self._take_body(exchange, rest, now)

    def _open_exchange(self, request: Request) -> Exchange:
        self.exchange = exchange = self.relay.new_exchange(self, request)
        exchange.open(self._first_ns)
        return exchange

    def _read_body(self) -> None:
        exchange = self.exchange
        assert exchange is not None
        data: bytes | None
        if self._buffer:  # what was too much for one turn of the loop
            data = bytes(self._buffer)
            self._buffer.clear()
            self.relay.reactor.soon_back(self._read_on)
        else:
            data = self._receive()
        if data is not None:
            self._take_body(exchange, data, monotonic_ns())

    def _take_body(self, exchange: Exchange, data: bytes, now: int) -> None:
        body = self._body
        assert body is not None
        try:
            end, payload = body.feed(data)
        except WastefulChunksError:
            self.refuse(413, RelayReason.BODY_TOO_LARGE, "The request body comes in too many too small chunks.")
            return
        except BodyTooLargeError:
            self._refuse_size()
            return
        except MessageError:
            self.refuse(400, RelayReason.FRAMING, "The chunked body is malformed.")
            return
        if payload and not self._grow(len(payload), body.most):
            return
        exchange.tap_body(payload, now)
        if body.done:
            self._come_early(data[end:])
            claim, self._claim, self._body = self._claim, None, None
            if claim is not None:
                self.relay.bodies.complete(claim)
            self._go(ClientState.ANSWERING)
            exchange.begin(body, now, claim)
            return
        self._buffer += data[end:]
        if self._claim is not None and self._claim.state is Room.WAITING:
            self._go(ClientState.WAITING)
        elif end < len(data):
            self.relay.reactor.soon_back(self._read_on)

    def _read_early(self) -> None:
        """While an answer is under way: further requests, or the client's end."""
        bodies = self.relay.bodies
        if len(self._buffer) >= _MAX_PIPELINED or bodies.early >= bodies.shares.early:
            self._go(ClientState.FULL)
            if self._end_announced:
                self._ended()
            return
        data = self._receive()
        if data is not None:
            self._come_early(data)

    def _come_early(self, data: bytes) -> None:
        self._buffer += data
        self._early += len(data)
        self.relay.bodies.early += len(data)

    def _forget_early(self) -> None:
        """What came early is a request like others now, or gone."""
        self.relay.bodies.early -= self._early
        self._early = 0

    # --- Room for it ---

    def _grow(self, size: int, most: int) -> bool:
        """So many bytes of the request are held more, of ``most`` that there can be. False: it was refused for it."""
        claim = self._claim
        if claim is None:
            claim = self._claim = self.relay.bodies.claim(self)
        self.relay.bodies.grow(claim, size, most)
        return claim.state is not Room.GONE

    def _release(self) -> None:
        claim, self._claim = self._claim, None
        if claim is not None:
            self.relay.bodies.release(claim)

    def room_found(self) -> None:
        """There is room for the whole body."""
        if self.state is ClientState.WAITING:
            self._go(ClientState.BODY)
            self.relay.reactor.soon_back(self._read_on)

    def room_lost(self, loss: Loss) -> None:
        """The request has to go."""
        if self.exchange is None:
            self._open_exchange(_unreadable(self._buffer))
        if loss is Loss.SLOW:
            self.refuse(
                408, RelayReason.UPLOAD_TOO_SLOW, "The request body came too slowly while others waited for room."
            )
        else:
            self.refuse(503, RelayReason.BODIES_FULL, "There is no room for this request body now; try again later.")

    @property
    def _is_empty(self) -> bool:
        """Whether nothing of a request came, or no more than an empty line."""
        return not self._buffer.strip(b"\r\n")

    def late(self) -> None:
        """The time for receiving a request, or for the TLS handshake, is over."""
        if self.exchange is None:
            if self._is_empty:
                self.abort()
                return
            self._open_exchange(_unreadable(self._buffer))
        self.refuse(408, RelayReason.REQUEST_TIMEOUT, "The request did not arrive in time.")

    # --- Refusals ---

    def refuse(self, status: int, reason: RelayReason, message: str) -> None:
        """Answer with an error of our own, before upstream saw anything."""
        exchange = self.exchange
        assert exchange is not None
        exchange.reject(status, reason, message)

    def _refuse_size(self) -> None:
        limit = self.relay.settings.max_body
        self.refuse(413, RelayReason.BODY_TOO_LARGE, f"The request body is larger than {limit} bytes.")

    # --- An answer ---

    def write(self, data: bytes) -> bool:
        """Send, and hold what the socket does not take: `unsent` says how much. False: the client has left."""
        if self.unsent is not None:
            self.unsent = unsent = memoryview(bytes(self.unsent) + data)
            self.relay.unsent.grows(self, len(unsent))
            return True
        try:
            sent = self.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return False
        if sent < len(data):
            self.hold(data, sent)
        return True

    def hold(self, data: bytes, sent: int) -> None:
        """The socket took only ``sent`` bytes."""
        self.unsent = unsent = memoryview(data)[sent:]
        self._note_taken(len(unsent))

    def _note_taken(self, unsent: int) -> None:
        """It has just taken some, and so much is held now."""
        if self.socket is not None:
            self._untaken = unacknowledged(self.socket)
        self.relay.unsent.holds(self, unsent)

    def _flush(self) -> None:
        assert self.unsent is not None
        try:
            self.unsent = self.unsent[self.send(self.unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self.gone()
            return
        if self.state in _FLUSHING:
            self.relay.flushing.add(self)  # it takes something
        if self.unsent:
            self._note_taken(len(self.unsent))
            return
        self.unsent = None
        self.relay.unsent.forget(self)
        if self.exchange is not None:
            self.exchange.client_unblocked()
        elif self.state is ClientState.CLOSING:
            self._half_close()
        elif self.state is ClientState.BREAKING:
            self._reset_when_taken()

    def exchange_over(self, farewell: Farewell, words: bytes) -> None:
        """The exchange has ended; ``words`` are sent before what ``farewell`` says."""
        self.exchange = self._body = None
        self._release()
        if words and not self.write(words):
            self.abort()
        elif farewell is Farewell.NEXT and not self.relay.policy.draining:
            self._await_next()
        elif farewell is Farewell.RESET or (farewell is Farewell.BREAK_OFF and self.tls is not None):
            self._break_off()
        elif farewell is not Farewell.GONE:
            self.close_gently()

    def _await_next(self) -> None:
        self._forget_early()
        if self._buffer or self.state is ClientState.FULL:
            self._begin_request(ClientState.AHEAD, monotonic_ns())
            self.relay.reactor.soon_back(self._next_request)
        elif self.state is ClientState.LAST:
            self.close_gently()
        else:
            self._go(ClientState.IDLE)

    def _next_request(self) -> None:
        if self.state is ClientState.AHEAD:
            self._go(ClientState.HEAD)
            self._take_head(monotonic_ns())
            self._read_on()

    # --- The end ---

    def gone(self) -> None:
        """The client left."""
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.client_gone()
        self.abort()

    def takes_nothing(self) -> None:
        """Its socket has had no room for long. That comes in large pieces, so see first whether it takes small ones."""
        if self.socket is None or self.unsent is None:
            return
        if unacknowledged(self.socket) < self._untaken:
            self._note_taken(len(self.unsent))
        else:
            self.leave()

    def leave(self) -> None:
        """It holds up its answer for too long: end that, and have upstream stop."""
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.client_gone(RelayReason.WRITE_TIMEOUT)
        self.give_up()

    def give_place(self) -> None:
        """Another client needs the descriptor more."""
        if self.state is ClientState.IDLE and self.tls is not None:
            self.tls.end()
        elif self.state in (ClientState.HEAD, ClientState.BODY, ClientState.WAITING):
            if self.exchange is None:
                self._open_exchange(_unreadable(self._buffer))
            self.refuse(503, RelayReason.CLIENTS_FULL, "There are too many clients to go on waiting for this request.")
        self.abort()

    def drain(self) -> None:
        """Close if nothing is being received or answered; what has just arrived still counts."""
        if self.state in (ClientState.IDLE, ClientState.HEAD):
            self._read_on()
        if self.state in RESTING and self._is_empty:
            self.close_gently()

    def close_gently(self) -> None:
        """Close once everything was sent, and not before the client had a chance to read it."""
        self._go(ClientState.CLOSING)
        self._buffer.clear()
        self._forget_early()
        if self.unsent is None:
            self._half_close()

    def _half_close(self) -> None:
        assert self.socket is not None
        self._go(ClientState.LINGERING)
        if self.tls is not None:
            self.tls.end()
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.abort()
            return
        self.relay.reactor.soon_back(self._read_on)

    def _throw_away(self) -> None:
        data = self._receive()
        if data is not None:
            self._lingered += len(data)
            if self._lingered > _MAX_LINGERING:
                self.abort()

    def _break_off(self) -> None:
        """End an answer so that it looks unfinished, though the client's side would take a close for its end.

        Over TLS it is the missing goodbye that shows it.
        """
        self._go(ClientState.BREAKING)
        self._buffer.clear()
        self._forget_early()
        if self.unsent is None:
            self._reset_when_taken()

    def _reset_when_taken(self, queued: int = _ENDLESS) -> None:
        """A reset throws away what the kernel still holds, so it waits for that; ``queued`` is what it held before."""
        if self.socket is None:
            return
        left = unacknowledged(self.socket)
        if left == 0:
            self.give_up()
            return
        if left < queued:
            self.relay.flushing.add(self)  # it takes something
        self.relay.reactor.call_later(_LOOK_AGAIN_S, lambda: self._reset_when_taken(left))

    def give_up(self) -> None:
        """The client has taken nothing for too long: what is still held is thrown away, here and in the kernel."""
        if self.socket is not None:
            abort_on_close(self.socket)
            self.abort()

    def abort(self) -> None:
        """Close now; calling twice does no harm."""
        opened, self.socket = self.socket, None
        if opened is not None:
            if self.state is ClientState.BREAKING:  # whatever it is that ends it: not the answer
                abort_on_close(opened)
            self.unsent = None
            self.relay.unsent.forget(self)
            self._forget_early()
            self._release()
            self._go(ClientState.CLOSED)
            self.relay.forget_client(self)
            self.relay.reactor.close(opened)

    def crash(self) -> None:
        """Something of ours failed while this connection was served."""
        if self.exchange is not None:
            self.exchange.crash()
        self.abort()


_RECEIVING: Final = frozenset(
    (ClientState.HANDSHAKE, ClientState.AHEAD, ClientState.HEAD, ClientState.BODY, ClientState.WAITING)
)
#: Not read, so that the client's end is only announced.
_STOPPED: Final = frozenset((ClientState.WAITING, ClientState.FULL))
_FLUSHING: Final = frozenset((ClientState.CLOSING, ClientState.BREAKING))
#: What to do when there is something to read.
_READ: Final[dict[ClientState, Callable[[ClientConnection], None]]] = {
    ClientState.HANDSHAKE: ClientConnection._read_nothing,
    ClientState.IDLE: ClientConnection._read_head,
    ClientState.AHEAD: ClientConnection._read_nothing,
    ClientState.HEAD: ClientConnection._read_head,
    ClientState.BODY: ClientConnection._read_body,
    ClientState.WAITING: ClientConnection._read_nothing,
    ClientState.ANSWERING: ClientConnection._read_early,
    ClientState.FULL: ClientConnection._read_nothing,
    ClientState.LAST: ClientConnection._read_nothing,
    ClientState.CLOSING: ClientConnection._throw_away,
    ClientState.BREAKING: ClientConnection._throw_away,
    ClientState.LINGERING: ClientConnection._throw_away,
    ClientState.CLOSED: ClientConnection._read_nothing,
}


_LOOP: Final = (
    508,
    RelayReason.LOOP,
    "This request has passed through here before: upstream leads back to prefillwatch.",
)


def _refusal(request: Request) -> tuple[int, RelayReason, str] | None:
    """Status, reason and message for requests that are never sent on."""
    if request.method == b"CONNECT":
        return 501, RelayReason.CONNECT_METHOD, "This is no tunnel: CONNECT is not supported."
    offers = b",".join(header.value for header in request.headers if header.name == b"upgrade")
    wanted = {token.strip(b" \t").lower() for token in offers.split(b",", MAX_OPTIONS)} - {b"", b"h2c"}
    if wanted and (b"upgrade" in request.connection or b"websocket" in wanted):
        return 501, RelayReason.UPGRADE, "Protocol upgrades, WebSocket among them, are not supported."
    return None


def _unreadable(head: bytearray) -> Request:
    """Stands for a request whose head was not understood, but for a HEAD: that is answered without a body."""
    return Request(
        method=b"HEAD" if head.startswith((b"HEAD ", b"\r\nHEAD ")) else b"", target=b"", minor=1, headers=[]
    )
