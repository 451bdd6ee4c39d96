"""A client's connection: requests are received here, one after the other, and answers leave through it."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from prefillwatch.relay import answers
from prefillwatch.relay.exchange import Exchange
from prefillwatch.relay.framing import FramingError
from prefillwatch.relay.http_head import MAX_REQUEST_HEAD, HeadError, Request, end_of_head, parse_request
from prefillwatch.relay.reactor import EDGES, ENDED, monotonic_ns
from prefillwatch.relay.request_body import BodyTooLargeError, RequestBody
from prefillwatch.relay.upstream import ByteStream, abort_on_close

if TYPE_CHECKING:
    from prefillwatch.relay.relay import Relay
    from prefillwatch.relay.tls import TlsSocket

_READ_BYTES: Final = 64 * 1024
#: Bytes of further requests that are taken in while one is being answered.
_MAX_PIPELINED: Final = 64 * 1024
#: Bytes thrown away after a refusal, so that the client gets to read it before the connection is reset.
_MAX_LINGERING: Final = 128 * 1024 * 1024
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class ClientConnection:
    """Receives requests and holds what the client's socket did not take yet (at most about one read)."""

    __slots__ = (
        "_body", "_buffer", "_closing",
        "_ending", "_first_ns", "_lingered", "_reading", "_searched", "_unread", "exchange", "fd",
        "is_tls", "recv", "relay", "send", "socket", "tls", "unsent",
    )  # fmt: skip

    def __init__(self, relay: Relay, opened: socket.socket, tls: TlsSocket | None) -> None:
        self.relay = relay
        self.tls = tls
        self.socket: socket.socket | None = tls.socket if tls else opened
        self.fd = self.socket.fileno()
        stream: ByteStream = tls or opened
        self.recv = stream.recv
        self.send = stream.send
        self.is_tls = tls is not None
        self.exchange: Exchange | None = None
        self.unsent: memoryview | None = None
        self._buffer = bytearray()  # of heads, and of requests that came early
        self._searched = 0
        self._first_ns = 0  # when the first byte of the request was read
        self._body: RequestBody | None = None
        # What to do when there is something to read; not bound, since that would be a reference cycle.
        self._reading: Callable[[ClientConnection], None] = ClientConnection._read_head
        self._unread = False
        self._ending = False  # the client's end was announced; it will not be again, so reading goes on up to it
        self._closing = False
        self._lingered = 0
        if tls is None:
            relay.client_idle.add(self)
            relay.reactor.register(self.fd, self._on_event, EDGES)
        else:
            relay.receiving.add(self)
            relay.reactor.register(self.fd, self._on_handshake, EDGES)

    # Events
    # -----------------------------------------------------------------------------------------------------------------

    def _on_event(self, events: int) -> None:
        if self.unsent is not None and events & select.EPOLLOUT:
            self._flush()
        if events & ENDED:
            self._ending = True
        if self._ending and self.exchange is not None and self.exchange.is_answering:
            self.gone()
        elif events & (select.EPOLLIN | ENDED) and self.socket is not None:
            self._reading(self)

    def _on_handshake(self, _events: int) -> None:
        assert self.tls is not None
        try:
            if not self.tls.handshake():
                return
        except OSError:
            self.abort()
            return
        self.relay.receiving.discard(self)
        self.relay.client_idle.add(self)
        self.relay.reactor.handlers[self.fd] = self._on_event
        self._read_head()

    def _receive(self) -> bytes | None:
        """What can be read now; None when there is nothing, or nobody any more."""
        try:
            data = self.recv(_READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            self.gone()
            return None
        if len(data) == _READ_BYTES or self._ending or self.is_tls:
            self.relay.reactor.soon(self._read_on)
        return data

    def _read_on(self) -> None:
        if self.socket is not None:
            self._reading(self)

    # A request
    # -----------------------------------------------------------------------------------------------------------------

    def _read_head(self) -> None:
        data = self._receive()
        if data is not None:
            now = monotonic_ns()
            if not self._first_ns:
                self._begin_request(now)
            self._buffer += data
            self._take_head(now)

    def _begin_request(self, now: int) -> None:
        self._first_ns = now
        self.relay.client_idle.discard(self)
        self.relay.receiving.add(self)

    def _take_head(self, now: int) -> None:
        buffer = self._buffer
        while buffer.startswith(b"\r\n"):  # RFC 9112 asks to forgive an empty line before a request
            del buffer[:2]
        try:
            end = end_of_head(buffer, self._searched)
            if end < 0 and len(buffer) <= MAX_REQUEST_HEAD:
                self._searched = len(buffer)
                return
            if not 0 <= end <= MAX_REQUEST_HEAD:
                raise HeadError(431, answers.HEAD_TOO_LARGE, f"A request head has at most {MAX_REQUEST_HEAD} bytes.")
            request = parse_request(bytes(memoryview(buffer)[:end]))
        except HeadError as error:
            self._open_exchange(_unreadable())
            self.refuse(error.status, error.reason, str(error))
            return
        rest = bytes(memoryview(buffer)[end:])
        buffer.clear()
        self._searched = 0
        self._accept(request, rest, now)

    def _accept(self, request: Request, rest: bytes, now: int) -> None:
        exchange = self._open_exchange(request)
        refusal = _refusal(request)
        if refusal is not None:
            self.refuse(*refusal)
            return
        try:
            self._body = RequestBody(request, self.relay.settings.max_body_bytes)
        except BodyTooLargeError:
            self._refuse_size()
            return
        self._reading = ClientConnection._read_body
        if not self._body.done and not rest and request.expect_continue:
            self.write(_CONTINUE)
        if rest or self._body.done:
            self._take_body(exchange, rest, now)

    def _open_exchange(self, request: Request) -> Exchange:
        self.exchange = exchange = Exchange(self.relay, self, request)
        exchange.open(self._first_ns)
        return exchange

    def _read_body(self) -> None:
        exchange = self.exchange
        assert exchange is not None
        data = self._receive()
        if data is not None:
            self._take_body(exchange, data, monotonic_ns())

    def _take_body(self, exchange: Exchange, data: bytes, now: int) -> None:
        body = self._body
        assert body is not None
        try:
            end, payload = body.feed(data)
        except BodyTooLargeError:
            self._refuse_size()
            return
        except (FramingError, HeadError):
            self.refuse(400, "framing", "The chunked body is malformed.")
            return
        exchange.tap_body(payload, now)
        if body.done:
            self._buffer += data[end:]
            self._body = None
            self._reading = ClientConnection._read_early
            self.relay.receiving.discard(self)
            exchange.begin(body, now)

    def _read_early(self) -> None:
        """While an answer is under way: further requests, or the client's end."""
        if len(self._buffer) >= _MAX_PIPELINED:
            self._unread = True
            return
        data = self._receive()
        if data is not None:
            self._buffer += data

    def late(self) -> None:
        """The time for receiving a request, or for the TLS handshake, is over."""
        if self.exchange is None:
            if not self._buffer:  # nothing came, or an empty line
                self.abort()
                return
            self._open_exchange(_unreadable())
        self.refuse(408, answers.REQUEST_TIMEOUT, "The request did not arrive in time.")

    # Refusals
    # -----------------------------------------------------------------------------------------------------------------

    def refuse(self, status: int, reason: str, message: str) -> None:
        """Answer with an error of our own, before upstream saw anything."""
        exchange = self.exchange
        assert exchange is not None
        self._body = None
        self.relay.receiving.discard(self)
        exchange.reject(status, reason, message)

    def _refuse_size(self) -> None:
        limit = self.relay.settings.max_body_bytes
        self.refuse(413, answers.BODY_TOO_LARGE, f"The request body is larger than {limit} bytes.")

    # An answer
    # -----------------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send, and hold what the socket does not take: `unsent` tells, and the exchange pauses then."""
        if self.unsent is not None:
            self.unsent = memoryview(bytes(self.unsent) + data)
            return
        try:
            sent = self.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.gone()
            return
        if sent < len(data):
            self.hold(data, sent)

    def hold(self, data: bytes, sent: int) -> None:
        """The socket took only ``sent`` bytes."""
        self.unsent = memoryview(data)[sent:]

    def _flush(self) -> None:
        assert self.unsent is not None
        try:
            self.unsent = self.unsent[self.send(self.unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self.gone()
            return
        if self.unsent:
            return
        self.unsent = None
        if self.exchange is not None:
            self.exchange.client_unblocked()
        elif self._closing:
            self._half_close()

    def exchange_over(self, *, keep: bool) -> None:
        """The exchange has ended and its answer is on its way out."""
        self.exchange = None
        self._first_ns = 0
        if not keep or self.relay.draining:
            self.close_gently()
            return
        self._reading = ClientConnection._read_head
        if self._buffer or self._unread:
            self._unread = False
            self._begin_request(monotonic_ns())
            self.relay.reactor.soon(self._next_request)
        else:
            self.relay.client_idle.add(self)

    def _next_request(self) -> None:
        if self.socket is not None and self.exchange is None and not self._closing:
            self._take_head(monotonic_ns())
            self._read_on()

    # The end
    # -----------------------------------------------------------------------------------------------------------------

    def gone(self) -> None:
        """The client left."""
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.client_gone()
        self.abort()

    def drain(self) -> None:
        """Close if nothing is being received or answered; what has just arrived still counts."""
        if self.exchange is None and not self._closing:
            self._read_on()
        if self.socket is not None and self.exchange is None and not self._buffer and not self._closing:
            self.close_gently()

    def close_gently(self) -> None:
        """Close once everything was sent, and not before the client had a chance to read it."""
        self._closing = True
        self._buffer.clear()
        self._reading = ClientConnection._throw_away
        self.relay.client_idle.discard(self)
        self.relay.receiving.discard(self)
        self.relay.lingering.add(self)
        if self.unsent is None:
            self._half_close()

    def _half_close(self) -> None:
        assert self.socket is not None
        if self.tls is not None:
            self.tls.end()
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.abort()
            return
        self.relay.reactor.soon(self._read_on)

    def _throw_away(self) -> None:
        data = self._receive()
        if data is not None:
            self._lingered += len(data)
            if self._lingered > _MAX_LINGERING:
                self.abort()

    def cut(self, *, reset: bool) -> None:
        """End an answer that is not complete so that the client notices.

        Framed answers miss their end; one that would end with the connection needs a reset to look unfinished.
        """
        self.exchange = None
        if reset and self.socket is not None:
            abort_on_close(self.socket)
        if reset or self.tls is not None:  # over TLS it is the missing goodbye that tells
            self.abort()
        else:
            self.close_gently()

    def abort(self) -> None:
        """Close now; calling twice does no harm."""
        opened, self.socket = self.socket, None
        if opened is not None:
            self.unsent = None
            self.relay.forget_client(self)
            self.relay.reactor.close(opened)

    def crash(self) -> None:
        """Something of ours failed while this connection was served."""
        if self.exchange is not None:
            self.exchange.crash()
        self.abort()


def _refusal(request: Request) -> tuple[int, str, str] | None:
    """Status, reason and message for requests that are never sent on."""
    if request.method == b"CONNECT":
        return 501, answers.CONNECT_METHOD, "This is no tunnel: CONNECT is not supported."
    offers = b",".join(header.value for header in request.headers if header.name == b"upgrade")
    wanted = {token.strip(b" \t").lower() for token in offers.split(b",")} - {b"", b"h2c"}
    if wanted and (b"upgrade" in request.connection or b"websocket" in wanted):
        return 501, answers.UPGRADE, "Protocol upgrades, WebSocket among them, are not supported."
    return None


def _unreadable() -> Request:
    """Stands for a request whose head was not understood."""
    return Request(method=b"", target=b"", minor=1, headers=[])
