"""As much HTTP/1.1 as the simulated server needs. A framework would cost more than the engine model does."""

from __future__ import annotations

import asyncio
from collections import deque
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

import httptools

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BODY_BYTES = 64 * 2**20
MAX_HEADER_BYTES = 64 * 2**10
# Unsent bytes above which a stream stops writing and collects tokens instead, as vLLM does for a slow reader.
WRITE_HIGH_WATER = 32 * 2**10


class Exchange:
    """One request and its answer."""

    __slots__ = ("_chunked", "_connection", "body", "headers", "method", "on_close", "on_drain", "path", "started")

    def __init__(
        self, connection: HttpConnection, method: str, path: str, headers: dict[str, str], chunked: bool
    ) -> None:
        self._connection = connection
        self._chunked = chunked
        self.method = method
        self.path = path
        self.headers = headers
        self.body = bytearray()
        self.started = False
        self.on_close: Callable[[], None] | None = None
        """Called once if the client goes away before the answer is complete."""
        self.on_drain: Callable[[], None] | None = None
        """Called when a slow reader has caught up."""

    @property
    def blocked(self) -> bool:
        """The reader is behind: hold tokens back until `on_drain`."""
        return self._connection.write_paused

    def respond(self, status: int, body: bytes, content_type: str = "application/json", allow: str = "") -> None:
        """Sends a whole answer."""
        fields = [f"content-length: {len(body)}"]
        if body:
            fields.append(f"content-type: {content_type}")
        if allow:
            fields.append(f"allow: {allow}")
        self._connection.write(self._head(status, fields) + (b"" if self.method == "HEAD" else body))
        self._connection.exchange_done(self)

    def start_stream(self) -> None:
        fields = ["content-type: text/event-stream; charset=utf-8"]
        if self._chunked:
            fields.append("transfer-encoding: chunked")
        self._connection.write(self._head(200, fields))

    def send(self, *events: bytes) -> None:
        """Sends each event as a chunk of its own, all in one write."""
        if self._chunked:
            self._connection.write(b"".join([b"%x\r\n%b\r\n" % (len(event), event) for event in events]))
        else:
            self._connection.write(b"".join(events))

    def end_stream(self, *events: bytes) -> None:
        self.send(*events)
        if self._chunked:
            self._connection.write(b"0\r\n\r\n")
        self._connection.exchange_done(self)

    def _head(self, status: int, fields: list[str]) -> bytes:
        self.started = True
        first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
        closing = [] if self._connection.keep_alive else ["connection: close"]
        lines = [first, f"date: {formatdate(usegmt=True)}", "server: uvicorn", *fields, *closing]
        return "\r\n".join([*lines, "", ""]).encode()


class HttpConnection(asyncio.Protocol):
    """A client's connection. Requests that arrive while one is being answered wait for their turn."""

    def __init__(
        self, handle: Callable[[Exchange], None], connections: set[HttpConnection], keep_alive_seconds: float
    ) -> None:
        self._handle = handle
        self._connections = connections
        self._keep_alive_seconds = keep_alive_seconds
        self._idle: asyncio.TimerHandle | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._queue: deque[Exchange] = deque()
        self._incoming: Exchange | None = None
        self._target = b""
        self._headers: dict[str, str] = {}
        self._header_bytes = 0
        self.keep_alive = True
        self.write_paused = False

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's, so there is nothing to check here.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        self._stop_idling()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, _RefusedError) as error:
            self._refuse(error)

    def pause_writing(self) -> None:
        self.write_paused = True

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._queue and self._queue[0].on_drain is not None:
            self._queue[0].on_drain()

    def connection_lost(self, _: Exception | None) -> None:
        self._connections.discard(self)
        self._stop_idling()
        self._transport = None
        queue, self._queue = self._queue, deque()
        for exchange in queue:
            if exchange.on_close is not None:
                exchange.on_close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # What the parser calls.

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers = {}
        self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._count_header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        self._count_header(len(name) + len(value))

    def on_headers_complete(self) -> None:
        method = self._parser.get_method().decode()
        path = self._target.partition(b"?")[0].decode("latin-1")
        self.keep_alive = self._parser.should_keep_alive()
        self._incoming = Exchange(self, method, path, self._headers, self._parser.get_http_version() != "1.0")
        if self._headers.get("expect", "").lower() == "100-continue":
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        assert self._incoming is not None
        if len(self._incoming.body) + len(body) > MAX_BODY_BYTES:
            raise _RefusedError(413)
        self._incoming.body += body

    def on_message_complete(self) -> None:
        assert self._incoming is not None
        self._queue.append(self._incoming)
        self._incoming = None
        if len(self._queue) == 1:
            self._handle(self._queue[0])

    # What an exchange calls.

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def exchange_done(self, exchange: Exchange) -> None:
        if self._queue and self._queue[0] is exchange:
            self._queue.popleft()
        if not self.keep_alive:
            self.close()
        elif self._queue:
            asyncio.get_running_loop().call_soon(self._next)
        else:
            self._idle = asyncio.get_running_loop().call_later(self._keep_alive_seconds, self.close)

    def _stop_idling(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _next(self) -> None:
        if self._queue:
            self._handle(self._queue[0])

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MAX_HEADER_BYTES:
            raise _RefusedError(431)

    def _refuse(self, error: Exception) -> None:
        cause: Any = error.__cause__ or error.__context__ or error
        status = cause.status if isinstance(cause, _RefusedError) else 400
        self.keep_alive = False
        if not self._queue:
            Exchange(self, "POST", "", {}, chunked=True).respond(
                status, b"Invalid HTTP request received.", "text/plain"
            )
        self.close()


class _RefusedError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status
