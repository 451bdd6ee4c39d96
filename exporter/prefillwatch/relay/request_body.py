"""A request body while it is received: counted, held whole, and given on in the framing it came in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prefillwatch.relay.blocks import Blocks
from prefillwatch.relay.errors import BodyTooLargeError, WastefulChunksError
from prefillwatch.relay.forwarding import forwarded_trailers
from prefillwatch.relay.framing import ChunkedScanner, LengthScanner
from prefillwatch.relay.http_head import Header, Request

#: Chunks cost time each, however small: their framing may be a quarter of the payload, and this much at first.
_FRAMING_ALLOWANCE: Final = 64 * 1024


class RequestBody:
    """What `feed` was given, less the transfer coding."""

    __slots__ = ("_blocks", "_chunks", "_limit", "_most", "_received")

    def __init__(self, request: Request, limit: int) -> None:
        """Raises BodyTooLargeError for an announced length beyond ``limit``."""
        if request.content_length > limit:
            raise BodyTooLargeError
        self._limit = limit
        self._most = limit if request.chunked else max(0, request.content_length)
        self._chunks: ChunkedScanner | LengthScanner = (
            ChunkedScanner() if request.chunked else LengthScanner(max(0, request.content_length))
        )
        self._blocks = Blocks()
        self._received = 0

    @property
    def size(self) -> int:
        """Bytes of payload so far."""
        return self._blocks.size

    @property
    def most(self) -> int:
        """Bytes of payload that there can be in the end."""
        return self._most

    @property
    def done(self) -> bool:
        return self._chunks.done

    @property
    def trailers(self) -> list[Header]:
        """What followed a chunked body."""
        return self._chunks.trailers if isinstance(self._chunks, ChunkedScanner) else []

    def feed(self, data: bytes) -> tuple[int, bytes]:
        """How many bytes belonged to the body, and their payload. While it is not complete, what follows is its rest,
        to be fed in another turn of the loop.

        Raises BodyTooLargeError, FramingError, and HeadError for trailers.
        """
        end, payload = self._chunks.feed(data)
        self._received += end
        size = self.size + len(payload)
        if size > self._limit:
            raise BodyTooLargeError
        if self._received - size > size // 4 + _FRAMING_ALLOWANCE:
            raise WastefulChunksError
        self._blocks.add(payload)
        return end, payload

    def whole(self) -> bytes:
        """The payload in one piece."""
        return b"".join(self._blocks)

    def framed(self) -> Iterator[bytes | memoryview]:
        """The bytes to send on."""
        if isinstance(self._chunks, LengthScanner):
            yield from self._blocks
            return
        for block in self._blocks:
            yield b"%x\r\n" % len(block)
            yield block
            yield b"\r\n"
        yield forwarded_trailers(self.trailers)
