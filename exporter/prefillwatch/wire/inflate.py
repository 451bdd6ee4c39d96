"""Compressed bodies inflated piece by piece, on a copy and with a hard limit, so that no bomb goes off in us."""

from __future__ import annotations

import zlib
from typing import Final, Protocol

import brotli
import zstandard

#: zstd frames may ask for gigabytes of window; browsers and servers keep to this.
_MAX_ZSTD_WINDOW: Final = 8 * 1024 * 1024
#: gzip members in one piece of data: after each of them what follows is copied.
_MAX_MEMBERS: Final = 64
#: A request body is inflated by so much at a time, and given up when it has taken so much more than it gave: blocks
#: that hold nothing but tables cost ten times as much as honest ones.
_CHUNK: Final = 16 * 1024
_MOST_OVERHEAD: Final = 64 * 1024


class InflateError(Exception):
    """The bytes are not in the announced encoding, or come out larger than allowed.

    ``inflated`` is what they gave before that, as far as the decoder says: all of it where junk follows the end.
    """

    def __init__(self, message: str, inflated: bytes = b"") -> None:
        super().__init__(message)
        self.inflated = inflated


class TooLargeError(InflateError):
    """More came out than allowed. ``beginning`` is that much of it."""

    def __init__(self, beginning: bytes) -> None:
        super().__init__("too large")
        self.beginning = beginning


class Inflater(Protocol):
    def feed(self, data: bytes) -> bytes:
        """What these bytes inflate to so far. Raises InflateError."""


class Identity:
    __slots__ = ()

    def feed(self, data: bytes) -> bytes:
        return data


class Spent:
    """After an error: gives nothing any more."""

    __slots__ = ()

    def feed(self, data: bytes) -> bytes:  # noqa: ARG002
        return b""


class _Zlib:
    """gzip (of several members, too, as long as they are not many in one read)."""

    __slots__ = ("_limit", "_stream", "_wbits")

    def __init__(self, limit: int, wbits: int) -> None:
        self._limit = limit
        self._wbits = wbits
        self._stream = zlib.decompressobj(wbits)

    def feed(self, data: bytes) -> bytes:
        out: list[bytes] = []
        room = self._limit
        members = 0
        while data:
            members += 1
            if members > _MAX_MEMBERS:
                raise InflateError("too many members", b"".join(out))
            try:
                piece = self._stream.decompress(data, room + 1)
            except zlib.error as error:
                raise InflateError(str(error), b"".join(out)) from None
            out.append(piece)
            room -= len(piece)
            if room < 0:
                raise TooLargeError(b"".join(out)[: self._limit])
            data = self._stream.unused_data
            if self._stream.eof:
                self._stream = zlib.decompressobj(self._wbits)
        return b"".join(out)


class _Deflate:
    """deflate: in a zlib wrapper by the book, raw in the wild. The first two bytes show which."""

    __slots__ = ("_inner", "_limit", "_start")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._start = b""
        self._inner: _Zlib | None = None

    def feed(self, data: bytes) -> bytes:
        if self._inner is None:
            data = self._start + data
            if len(data) < 2:
                self._start = data
                return b""
            wrapped = data[0] & 0x0F == zlib.DEFLATED and int.from_bytes(data[:2], "big") % 31 == 0
            self._inner = _Zlib(self._limit, zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
        return self._inner.feed(data)


class _Brotli:
    __slots__ = ("_limit", "_stream")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._stream = brotli.Decompressor()

    def feed(self, data: bytes) -> bytes:
        try:
            out: bytes = self._stream.process(data, output_buffer_limit=self._limit + 1)
        except brotli.error as error:
            raise InflateError(str(error)) from None
        if len(out) > self._limit:
            raise TooLargeError(out[: self._limit])
        return out


class _Sink:
    """Takes what zstd gives out, and stops it in the middle when that is too much."""

    __slots__ = ("_limit", "pieces", "size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.pieces: list[bytes] = []
        self.size = 0

    def write(self, piece: bytes) -> int:
        self.pieces.append(bytes(piece))
        self.size += len(piece)
        if self.size > self._limit:
            raise TooLargeError(self.take()[: self._limit])
        return len(piece)

    def take(self) -> bytes:
        out = b"".join(self.pieces)
        self.pieces.clear()
        self.size = 0
        return out


class _Zstd:
    __slots__ = ("_sink", "_stream")

    def __init__(self, limit: int) -> None:
        self._sink = _Sink(limit)
        self._stream = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW).stream_writer(self._sink)  # type: ignore[arg-type]

    def feed(self, data: bytes) -> bytes:
        try:
            self._stream.write(data)
        except zstandard.ZstdError as error:
            raise InflateError(str(error), self._sink.take()) from None
        return self._sink.take()


class _Chain:
    __slots__ = ("_inflaters",)

    def __init__(self, inflaters: list[Inflater]) -> None:
        self._inflaters = inflaters

    def feed(self, data: bytes) -> bytes:
        try:
            for inflater in self._inflaters:
                data = inflater.feed(data)
        except InflateError as error:  # what it holds may be coded still
            raise InflateError(str(error)) from None
        return data


def inflater_for(content_encoding: str, limit: int) -> Inflater:
    """The inflater for a Content-Encoding header; `limit` bounds what one `feed` may give. Raises InflateError."""
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    inflaters = [_inflater(coding, limit) for coding in reversed(codings) if coding not in ("", "identity")]
    if len(inflaters) > 2:
        raise InflateError("too many codings")
    if not inflaters:
        return Identity()
    return inflaters[0] if len(inflaters) == 1 else _Chain(inflaters)


def _inflater(coding: str, limit: int) -> Inflater:
    if coding in ("gzip", "x-gzip"):
        return _Zlib(limit, 16 + zlib.MAX_WBITS)
    if coding == "deflate":
        return _Deflate(limit)
    if coding == "br":
        return _Brotli(limit)
    if coding == "zstd":
        return _Zstd(limit)
    raise InflateError("unknown coding")


def inflate_beginning(content_encoding: str, data: bytes, limit: int) -> bytes:
    """What a whole body inflates to, but no more than `limit` bytes; what came before a fault.

    One coding alone is undone: servers that undo two are unheard of. Raises InflateError for other codings, and where
    nothing comes out.
    """
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    codings = [coding for coding in codings if coding not in ("", "identity")]
    if len(codings) != 1:
        raise InflateError("not one coding")
    inflater = _inflater(codings[0], limit)
    out: list[bytes] = []
    size = 0
    for start in range(0, len(data), _CHUNK):
        if start > size + _MOST_OVERHEAD or size >= limit:
            break
        try:
            out.append(inflater.feed(data[start : start + _CHUNK]))
        except InflateError as error:
            out.append(error.beginning if isinstance(error, TooLargeError) else error.inflated)
            break
        size += len(out[-1])
    inflated = b"".join(out)[:limit]
    if not inflated:
        raise InflateError("nothing in it")
    return inflated
