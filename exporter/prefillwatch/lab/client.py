"""A client that measures: sends one request and notes when each read that brought generated text was made.

It shares no code with what it checks: framing and events are parsed here in their own simple way.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import ssl
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

import httptools
import msgspec

from prefillwatch.settings.addresses import UNIX
from prefillwatch.units import NS

if TYPE_CHECKING:
    from collections.abc import Mapping

CHAT: Final = "/v1/chat/completions"
_MOST_TOKENS: Final = 10**9
#: An answer with a longer body, or a longer event, is abandoned.
LARGEST_UNREAD: Final = 64 * 2**20


@dataclass(slots=True)
class Answer:
    """What came back for one request. Times are monotonic nanoseconds; `status` is 0 where no answer came."""

    sent_ns: int = 0
    status: int = 0
    #: Reads that completed at least one event with generated text.
    reads_ns: list[int] = field(default_factory=list)
    #: How many such events each of those reads completed.
    read_events: list[int] = field(default_factory=list)
    #: Events with generated text.
    events: int = 0
    closed_ns: int = 0
    #: The answer came to its proper end.
    complete: bool = False
    error: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    #: Prompt tokens that came from the server's prefix cache, where usage says so.
    cached_tokens: int | None = None
    #: The body of an answer that was no stream.
    body: bytes = b""

    @property
    def ttft_seconds(self) -> float | None:
        return (self.reads_ns[0] - self.sent_ns) / NS if self.reads_ns else None

    @property
    def gaps_seconds(self) -> list[float]:
        """Inter-token latencies: the time between consecutive reads."""
        return [(later - earlier) / NS for earlier, later in itertools.pairwise(self.reads_ns)]


async def ask(
    url: str,
    body: Mapping[str, Any] | None,
    *,
    path: str = CHAT,
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float = 600.0,
    tls: ssl.SSLContext | None = None,
    answer: Answer | None = None,
) -> Answer:
    """Sends one request on a connection of its own: a POST, or a GET where there is no body.

    `url` is http:// or https://, with a path before `path` or without, or unix:/SOCKET; `tls` says whom to trust
    (default: the system's authorities). What a server or the network does is no exception but an `Answer.error`.
    Cancelling closes the connection; who wants to know what had come by then, or while it comes, passes an `answer` to
    be filled.
    """
    reader = _AnswerReader(Answer() if answer is None else answer)
    parts = urlsplit("http://localhost" if url.startswith(UNIX) else url)
    request = _request(parts.netloc.rpartition("@")[2], parts.path.rstrip("/") + path, body, headers or {})
    try:
        await asyncio.wait_for(_exchange(url, reader, request, tls), timeout_seconds)
    except asyncio.TimeoutError:
        reader.give_up(f"no complete answer within {timeout_seconds:g} s")
    except OSError as error:
        reader.give_up(_in_words(error))
    return reader.answer


async def _exchange(url: str, reader: _AnswerReader, request: bytes, tls: ssl.SSLContext | None) -> None:
    transport = await _connected(url, reader, tls)
    try:
        reader.send(request)
        await reader.done
    finally:
        # Not close(): over TLS that would wait for the other side to say goodbye.
        transport.abort()


async def _connected(url: str, reader: _AnswerReader, tls: ssl.SSLContext | None) -> asyncio.Transport:
    loop = asyncio.get_running_loop()
    if url.startswith(UNIX):
        transport, _ = await loop.create_unix_connection(lambda: reader, url.removeprefix(UNIX))
        return transport
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    context = (tls or ssl.create_default_context()) if secure else None
    transport, _ = await loop.create_connection(lambda: reader, parts.hostname or "", port, ssl=context)
    return transport


def _in_words(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS there: {error.reason or error}"
    if isinstance(error, ConnectionRefusedError) or "Errno 111" in str(error):  # of several addresses all refused
        return "connection refused"
    known = error.errno is not None and error.errno > 0
    return os.strerror(error.errno) if known and error.errno else error.strerror or str(error)


def _request(host: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]) -> bytes:
    payload = b"" if body is None else msgspec.json.encode(body)
    content = ["Content-Type: application/json", f"Content-Length: {len(payload)}"] if body is not None else []
    lines = [
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1",
        f"Host: {host}",
        *content,
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + payload


class _AnswerReader(asyncio.Protocol):
    """Reads one answer off a connection."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        answer.sent_ns = time.monotonic_ns()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._is_stream = False
        self._said_done = False

    def send(self, request: bytes) -> None:
        assert self._transport is not None
        self._transport.write(request)
        self.answer.sent_ns = time.monotonic_ns()

    def give_up(self, error: str) -> None:
        """For what the reader cannot see: no connection, or a time limit."""
        self.answer.closed_ns = time.monotonic_ns()
        self.answer.error = error

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        try:
            self._parser.feed_data(data)
            events = self._take_events() if self._is_stream else 0
            if events:
                self.answer.reads_ns.append(now)
                self.answer.read_events.append(events)
        except httptools.HttpParserError as error:
            self._end(f"no valid HTTP answer: {error}")
        except msgspec.DecodeError as error:
            self._end(f"an event that is no JSON: {error}")
        except (AttributeError, TypeError):
            self._end("an event that is of no known shape")
        if self.answer.complete:
            self._end("")

    def connection_lost(self, error: Exception | None) -> None:
        # A stream without a length ends with an event that says so.
        self.answer.complete = self.answer.complete or (self._said_done and error is None)
        self._end(
            "" if self.answer.complete else f"connection lost: {error or 'closed before the answer was complete'}"
        )

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-type":
            self._is_stream = value.startswith(b"text/event-stream")

    def on_headers_complete(self) -> None:
        self.answer.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._buffer += body
        if len(self._buffer) > LARGEST_UNREAD:
            self._end(f"an answer that goes on beyond {LARGEST_UNREAD >> 20} MiB")

    def on_message_complete(self) -> None:
        self.answer.complete = True

    def _end(self, error: str) -> None:
        if self.done.done():
            return
        self.answer.closed_ns = time.monotonic_ns()
        self.answer.error = error
        if not self._is_stream and not error:
            self._take_whole()
        self.done.set_result(None)

    def _take_events(self) -> int:
        """Consumes the complete events that have arrived; returns how many of them bring text."""
        *events, rest = bytes(self._buffer).replace(b"\r\n", b"\n").split(b"\n\n")
        self._buffer = bytearray(rest)
        with_text = sum(self._take_event(event) for event in events)
        self.answer.events += with_text
        return with_text

    def _take_event(self, event: bytes) -> bool:
        data = next((line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")), b"")
        if not data.startswith(b"{"):
            self._said_done = self._said_done or data == b"[DONE]"
            return False
        fields = msgspec.json.decode(data)
        self._note_usage(fields)
        if fields.get("error"):
            self._end("an error object in the stream")
        return _has_text(fields)

    def _take_whole(self) -> None:
        self.answer.body = bytes(self._buffer)
        if self.answer.status == 200 and self.answer.body.startswith(b"{"):
            with contextlib.suppress(msgspec.DecodeError):
                self._note_usage(msgspec.json.decode(self.answer.body))

    def _note_usage(self, fields: dict[str, Any]) -> None:
        inner = fields.get("response") or fields.get("message") or fields
        usage = fields.get("usage") or (inner.get("usage") if isinstance(inner, dict) else None)
        if not usage:
            return
        self.answer.prompt_tokens = prompt = _count(usage.get("prompt_tokens", usage.get("input_tokens")))
        self.answer.completion_tokens = _count(usage.get("completion_tokens", usage.get("output_tokens")))
        cached = _count((usage.get("prompt_tokens_details") or {}).get("cached_tokens"))
        if cached is not None and (prompt is None or cached <= prompt):
            self.answer.cached_tokens = cached


def _count(value: Any) -> int | None:
    """A number of tokens; None for what cannot be one."""
    return value if isinstance(value, int) and 0 <= value <= _MOST_TOKENS else None


_TEXT: Final = ("content", "reasoning", "reasoning_content", "tool_calls")


def _has_text(fields: dict[str, Any]) -> bool:
    """Whether an event of any of the four endpoints carries generated text."""
    for choice in fields.get("choices") or ():
        delta = choice.get("delta") or {}
        if choice.get("text") or any(delta.get(name) for name in _TEXT):
            return True
    kind = fields.get("type", "")
    if kind.endswith(".delta"):
        return bool(fields.get("delta"))
    return bool(kind == "content_block_delta")
