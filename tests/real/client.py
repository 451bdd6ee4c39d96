"""An HTTP client that keeps what a proxy must not change: every read with its time, and the bytes as they came.

One request per connection. Nothing is parsed while the answer comes in; what the bytes mean is worked out afterwards,
so that the client does not disturb the times it takes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httptools


@dataclass(slots=True)
class Read:
    """One `recv`: when, and what of the body it brought (de-chunked)."""

    at_ns: int
    body: bytes


@dataclass
class Answer:
    """An answer as the client saw it. `complete` is False when the connection ended before the message did."""

    sent_ns: int
    ended_ns: int
    status: int
    headers: list[tuple[bytes, bytes]]
    reads: list[Read]
    complete: bool

    @property
    def body(self) -> bytes:
        return b"".join(read.body for read in self.reads)

    def header(self, name: str) -> bytes | None:
        wanted = name.lower().encode()
        return next((value for key, value in self.headers if key.lower() == wanted), None)

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """The JSON objects of an event stream, `[DONE]` left out."""
        return [event for _, event in self.timed_events()]

    def timed_events(self) -> Iterator[tuple[Read, Any]]:
        """Each JSON event with the read that completed it."""
        pending = b""
        for read in self.reads:
            *blocks, pending = (pending + read.body).split(b"\n\n")
            for block in blocks:
                data = b"\n".join(line[5:].lstrip() for line in block.split(b"\n") if line.startswith(b"data:"))
                if data and data != b"[DONE]":
                    yield read, json.loads(data)


@dataclass
class Exchange:
    """The raw bytes of one connection, both ways."""

    sent: bytes = b""
    sent_ns: int = 0
    reads: list[tuple[int, bytes]] = field(default_factory=list)
    answer_starts: int = 0

    def note_sent(self, data: bytes) -> None:
        self.answer_starts = len(self.reads)  # what is read from here on answers this
        self.sent += data
        self.sent_ns = time.monotonic_ns()

    def note_read(self, data: bytes) -> None:
        self.reads.append((time.monotonic_ns(), data))

    def last_answer(self) -> Answer:
        """The answer to the last request; those before it on the same connection are left out."""
        state = _Parser()
        parser = httptools.HttpResponseParser(state)
        reads: list[Read] = []
        for at_ns, wire in self.reads[self.answer_starts :]:
            parser.feed_data(wire)
            reads.append(Read(at_ns, state.take_body()))
        status = parser.get_status_code() if reads else 0
        return Answer(self.sent_ns, time.monotonic_ns(), status, state.headers, reads, state.complete)


@dataclass
class _Parser:
    """Receives httptools' callbacks for one response."""

    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    complete: bool = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True

    def take_body(self) -> bytes:
        body, self.body = self.body, b""
        return body


class _Connection(asyncio.Protocol):
    def __init__(self, exchange: Exchange, close_after_bytes: int | None) -> None:
        self.exchange = exchange
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.close_after_bytes = close_after_bytes
        self.received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.exchange.note_read(data)
        self.received += len(data)
        if self.close_after_bytes is not None and self.received >= self.close_after_bytes:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


async def ask(
    port: int,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
    *,
    method: str | None = None,
    close_after_bytes: int | None = None,
    leave: asyncio.Event | None = None,
    exchange: Exchange | None = None,
    limit_seconds: float = 600.0,
) -> Answer:
    """Send one request to 127.0.0.1:`port` and keep everything that comes back.

    A client that leaves closes the connection before the answer is whole: once `close_after_bytes` have arrived, or
    when `leave` is set. Whoever wants to see how far it is passes an `exchange` and looks at its reads. Raises
    TimeoutError when nothing ended the exchange within `limit_seconds`.
    """
    loop = asyncio.get_running_loop()
    kept = exchange or Exchange()
    transport, connection = await loop.create_connection(
        lambda: _Connection(kept, close_after_bytes), "127.0.0.1", port
    )
    request = request_bytes(path, body, headers or {}, method)
    transport.write(request)
    connection.exchange.note_sent(request)
    try:
        await asyncio.wait_for(_ended(connection.closed, leave), limit_seconds)
    finally:
        transport.abort()
    return connection.exchange.last_answer()


async def _ended(closed: asyncio.Future[None], leave: asyncio.Event | None) -> None:
    if leave is None:
        await closed
        return
    leaving = asyncio.create_task(leave.wait())
    try:
        await asyncio.wait((closed, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()


def request_bytes(path: str, body: Any, headers: dict[str, str], method: str | None = None) -> bytes:
    payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"Host": "127.0.0.1", "Connection": "close", "Content-Type": "application/json"} | headers
    if payload:
        fields["Content-Length"] = str(len(payload))
    lines = [f"{method or ('POST' if payload else 'GET')} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + payload
