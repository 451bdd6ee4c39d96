"""What others make of the same bytes: h11, llhttp (by httptools) and the standard library."""

from __future__ import annotations

import contextlib
import http.client
import io
from typing import Any, NamedTuple, cast

import h11
import httptools


class Meaning(NamedTuple):
    """A complete answer: interim ones are not counted."""

    status: int
    body: bytes


def by_h11(data: bytes, method: bytes, *, closed: bool) -> Meaning | None:
    """None: it is refused, or not complete."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    connection.send(h11.Request(method=method, target="/", headers=[("host", "a")]))
    connection.send(h11.EndOfMessage())
    status, body = 0, bytearray()
    try:
        connection.receive_data(data)
        if closed:
            connection.receive_data(b"")
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return Meaning(status, bytes(body))
            elif not isinstance(event, h11.InformationalResponse):
                return None
    except h11.RemoteProtocolError:
        return None


def by_llhttp(data: bytes, method: bytes, *, closed: bool) -> Meaning | None:
    """HEAD is beyond httptools."""
    if method == b"HEAD":
        return None
    seen = _Seen()
    parser = httptools.HttpResponseParser(seen)
    seen.parser = parser
    with contextlib.suppress(httptools.HttpParserError, httptools.HttpParserUpgrade, _CompleteError):
        parser.feed_data(data)
    if seen.complete:
        return Meaning(seen.status, bytes(seen.body))
    return Meaning(seen.status, bytes(seen.body)) if closed and seen.until_close else None


class _CompleteError(Exception):
    pass


class _Seen:
    def __init__(self) -> None:
        self.parser: Any = None
        self.status = 0
        self.body = bytearray()
        self.complete = self.until_close = self._framed = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._framed = self._framed or name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()
        self.until_close = not self._framed

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        if self.status >= 200:
            self.complete = True
            raise _CompleteError
        self.body.clear()
        self._framed = False


class _Wire(io.BytesIO):
    def makefile(self, *_: Any) -> _Wire:
        return self


def by_stdlib(data: bytes, method: bytes, *, closed: bool) -> Meaning | None:
    response = http.client.HTTPResponse(cast("Any", _Wire(data)), method=method.decode())
    try:
        response.begin()
        until_close = response.length is None and not response.chunked
        body = response.read()
    except (http.client.HTTPException, ValueError, OSError):
        return None
    return None if until_close and not closed else Meaning(response.status, body)


def meanings(data: bytes, method: bytes, *, closed: bool) -> set[Meaning]:
    """Every meaning that somebody gives to the bytes of an answer."""
    found = (judge(data, method, closed=closed) for judge in (by_h11, by_llhttp, by_stdlib))
    return {meaning for meaning in found if meaning is not None}
