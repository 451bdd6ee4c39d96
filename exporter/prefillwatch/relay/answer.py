"""How one answer passes through: what goes to the client, what the observer may see, and where it ends."""

from __future__ import annotations

import enum
from typing import Final, Protocol

from prefillwatch.relay.forwarding import forwarded_trailers, response_head, trailer_lines
from prefillwatch.relay.framing import ChunkedScanner, CloseScanner, LengthScanner
from prefillwatch.relay.http_head import Request, Response, has_body

#: A JSON answer beyond this is not shown to the observer: half of one says nothing.
_MAX_OBSERVED_JSON: Final = 8 * 2**20
#: Sizes of what is not shown are reported in steps of so many bytes.
_UNSHOWN_STEP: Final = 2**20


class Stripper(Protocol):
    """Takes away again what we asked for in the client's place."""

    def feed(self, data: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


class _Passage(enum.Enum):
    AS_IT_CAME = enum.auto()  # framing included
    PLAIN = enum.auto()  # payload only, ended by closing: chunks mean nothing to a client of HTTP/1.0
    CHUNKS = enum.auto()  # framed anew: something is stripped


class Answer:
    """The body of one response on its way to the client.

    ``head`` is the head for the client. ``until_close``: upstream ends the body by closing. ``client_until_close``: we
    do, so an end that is none must look like an error. ``upstream_limit``: the Keep-Alive header of upstream.
    ``observed``: the observer may see it; ``hidden``: it would be of no use to it, so only sizes are reported.
    """

    __slots__ = (
        "_end_passed", "_kept", "_observed_left", "_passage", "_scanner", "_trailers_passed", "_unshown",
        "client_keeps", "client_until_close", "head", "hidden", "is_stream", "observed", "stripper", "until_close",
        "upstream_keeps", "upstream_limit",
    )  # fmt: skip

    def __init__(
        self, request: Request, response: Response, *, observed: bool, keep: bool, stripper: Stripper | None
    ) -> None:
        content_type = response.header(b"content-type").lower()
        self.is_stream = b"event-stream" in content_type
        self.observed = observed and (self.is_stream or b"json" in content_type)
        self._observed_left = _MAX_OBSERVED_JSON
        self.hidden = not self.is_stream and response.content_length > _MAX_OBSERVED_JSON
        self._unshown = -1  # bytes not reported yet; -1: none were hidden so far
        self._scanner = _scanner(request, response)
        self._kept = b""  # read, and not looked at yet
        self._trailers_passed = 0
        self._end_passed = 0  # bytes of the empty line that ends it
        is_readable = response.header(b"content-encoding").lower() in (b"", b"identity")
        strips = self.is_stream and response.status == 200 and is_readable
        self.stripper = stripper if strips and not self._scanner.done else None
        self._passage = self._choose_passage(request, response)
        self.until_close = isinstance(self._scanner, CloseScanner)
        self.client_until_close = self._passage is _Passage.PLAIN or (
            self._passage is _Passage.AS_IT_CAME and self.until_close
        )
        self.upstream_keeps = response.keep_alive and not self.until_close and not response.doubtful
        self.upstream_limit = response.header(b"keep-alive")
        self.client_keeps = request.keep_alive and keep and not self.client_until_close
        as_it_came = self._passage is _Passage.AS_IT_CAME
        kept = b"" if request.minor == 1 else b"keep-alive"
        self.head = response_head(
            response,
            chunked=self._passage is _Passage.CHUNKS or (as_it_came and response.chunked and request.minor == 1),
            length=as_it_came and not response.chunked,
            connection=kept if self.client_keeps else b"close",
        )

    def _choose_passage(self, request: Request, response: Response) -> _Passage:
        if self._scanner.done:
            return _Passage.AS_IT_CAME
        if self.stripper is not None:
            return _Passage.CHUNKS if request.minor == 1 else _Passage.PLAIN
        return _Passage.PLAIN if response.chunked and request.minor == 0 else _Passage.AS_IT_CAME

    @property
    def done(self) -> bool:
        return self._scanner.done

    @property
    def is_behind(self) -> bool:
        """Whether `feed` has kept something for the next call."""
        return bool(self._kept)

    @property
    def is_plain_stream(self) -> bool:
        """Whether whole chunks can be passed on and shown without a closer look, from here."""
        scanner = self._scanner
        return (
            self.observed
            and not self._kept
            and self.is_stream
            and not self.hidden
            and self._passage is _Passage.AS_IT_CAME
            and isinstance(scanner, ChunkedScanner)
            and scanner.between_chunks
        )

    def feed(self, data: bytes) -> tuple[bool, bytes, bytes]:
        """Whether bytes came that are no part of the answer, what the client gets, and the payload as upstream sent it.

        What is too much for one call is kept: then `is_behind`, and it is to be called again, without new bytes too.
        Raises FramingError, and HeadError for malformed trailers.
        """
        if self._kept:
            data, self._kept = self._kept + data, b""
        end, payload = self._scanner.feed(data)
        extra = end < len(data)
        if extra and not self.done:
            extra, data, self._kept = False, data[:end], data[end:]
        if self._passage is not _Passage.AS_IT_CAME:
            return extra, self._framed_anew(payload), payload
        if isinstance(self._scanner, ChunkedScanner) and self._scanner.trailers_at < len(data):
            return extra, data[: self._scanner.trailers_at] + self._end_of_chunks(self._scanner), payload
        return extra, data[:end] if extra else data, payload

    def finish(self) -> bytes:
        """Upstream closed, and that is the end: what the client still gets."""
        self._scanner.done = True
        return b"" if self._passage is _Passage.AS_IT_CAME else self._framed_anew(b"")

    def observes(self, payload: bytes) -> bool:
        """Whether the observer gets to see these bytes."""
        if self.observed and not self.hidden and not self.is_stream:
            self._observed_left -= len(payload)
            self.hidden = self._observed_left < 0
        return self.observed and not self.hidden

    def hide(self, payload: bytes) -> int:
        """Count these bytes as not shown; how many of them are to be reported by now, mostly 0."""
        begins = self._unshown < 0
        self._unshown = max(self._unshown, 0) + len(payload)
        return self.take_unshown() if begins or self._unshown >= _UNSHOWN_STEP else 0

    def take_unshown(self) -> int:
        """Bytes that were not reported to the observer."""
        left, self._unshown = max(self._unshown, 0), min(self._unshown, 0)
        return left

    def _end_of_chunks(self, scanner: ChunkedScanner) -> bytes:
        """What is new of what follows the last chunk. A trailer passes once it is whole, since it may have to go."""
        lines = trailer_lines(scanner.trailers[self._trailers_passed :])
        self._trailers_passed = len(scanner.trailers)
        end = b"\r\n" if scanner.done else b"\r" if scanner.has_half_ended else b""
        passed, self._end_passed = self._end_passed, len(end)
        return lines + end[passed:]

    def _framed_anew(self, payload: bytes) -> bytes:
        if self.stripper is not None:
            payload = self.stripper.feed(payload)
            if self.done:
                payload += self.stripper.finish()
        if self._passage is _Passage.PLAIN:
            return payload
        chunk = b"%x\r\n%b\r\n" % (len(payload), payload) if payload else b""
        if not self.done:
            return chunk
        trailers = self._scanner.trailers if isinstance(self._scanner, ChunkedScanner) else []
        return chunk + forwarded_trailers(trailers)


def _scanner(request: Request, response: Response) -> ChunkedScanner | LengthScanner | CloseScanner:
    if not has_body(request.method, response):
        return LengthScanner(0)
    if response.chunked:
        return ChunkedScanner(of_answer=True)
    return LengthScanner(response.content_length) if response.content_length >= 0 else CloseScanner()
