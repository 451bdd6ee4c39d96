"""Where a message body ends and which of its bytes are payload. Pure: bytes in, offsets and payload out.

Every scanner has ``feed(data) -> (end, payload)``: the first ``end`` bytes of ``data`` belong to the body, ``payload``
is them without framing; ``done`` says that the body is complete. What follows ``end`` is not part of the message then.
While it is not complete, what follows is to be fed again: one call does not take any number of chunks.
"""

from __future__ import annotations

import re
from typing import Final

from prefillwatch.relay.errors import FramingError
from prefillwatch.relay.http_head import Header, parse_trailer

_MAX_SIZE_LINE: Final = 4096
#: Chunks that one `feed` takes: less than a millisecond's work, however small they are.
MOST_CHUNKS: Final = 512
_MAX_TRAILERS: Final = 16 * 1024
#: Of a line that comes in pieces, as much is read again with each piece.
_READ_AGAIN: Final = 64
_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED: Final = rb'"(?:[^\x00-\x08\x0a-\x1f\x7f"\\]|\\[^\x00-\x08\x0a-\x1f\x7f])*"'
_EXTENSION: Final = rb"[ \t]*;[ \t]*%b(?:[ \t]*=[ \t]*(?:%b|%b))?" % (_TOKEN, _TOKEN, _QUOTED)
_SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:%b)*" % _EXTENSION)
#: What nearly every chunk begins with.
_PLAIN_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n")
#: What can still become a size line.
_SIZE_LINE_START: Final = re.compile(rb"[0-9A-Fa-f]{1,15}(?:[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?)\r?")
_TEXT_OF_LINE: Final = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*\r?")


class LengthScanner:
    """A body of known length."""

    __slots__ = ("_left", "done")

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0

    def feed(self, data: bytes) -> tuple[int, bytes]:
        if len(data) < self._left:
            self._left -= len(data)
            return len(data), data
        end, self._left, self.done = self._left, 0, True
        return end, data[:end]


class CloseScanner:
    """A body that ends with its connection."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False

    def feed(self, data: bytes) -> tuple[int, bytes]:
        return len(data), data


class ChunkedScanner:
    """A chunked body. `feed` raises FramingError, and HeadError for its trailers.

    A trailer about framing is refused in a request; of an answer (``of_answer``) only that trailer is left out.
    ``trailers_at`` says where in the bytes fed last the trailers begin, the empty line after them included; behind
    them while there are none.
    """

    __slots__ = (
        "_line",
        "_lines_left",
        "_of_answer",
        "_state",
        "_trailer_bytes",
        "done",
        "left",
        "trailers",
        "trailers_at",
    )

    _SIZE, _DATA, _DATA_END, _TRAILERS = range(4)

    def __init__(self, *, of_answer: bool = False) -> None:
        self._of_answer = of_answer
        self._lines_left = 0
        self.done = False
        self.left = 0  # of the chunk being read
        self.trailers: list[Header] = []
        self.trailers_at = 0
        self._state = self._SIZE
        self._line = b""  # start of a line whose end has not come yet
        self._trailer_bytes = 0

    @property
    def between_chunks(self) -> bool:
        """Whether the next byte is the first of a chunk."""
        return self._state == self._SIZE and not self._line and not self.done

    @property
    def has_half_ended(self) -> bool:
        """Whether only the last byte is missing."""
        return self._state == self._TRAILERS and self._line == b"\r"

    def feed(self, data: bytes) -> tuple[int, bytes]:
        spans: list[bytes] = []
        position, size = 0, len(data)
        self._lines_left = MOST_CHUNKS
        self.trailers_at = 0 if self._state == self._TRAILERS else size
        while position < size and not self.done and self._lines_left > 0:
            if self._state == self._SIZE and not self._line:
                position = self._take_whole_chunks(data, position, spans)
                if position == size or not self._lines_left:
                    break
            if self._state == self._DATA:
                position = self._take_data(data, position, spans)
            elif self._state == self._DATA_END:
                position = self._take_data_end(data, position)
            else:
                position = self._take_line(data, position)
        return position, spans[0] if len(spans) == 1 else b"".join(spans)

    def _take_whole_chunks(self, data: bytes, position: int, spans: list[bytes]) -> int:
        """Chunks that are there from their first byte to their last: the same as the other steps do, in one."""
        while self._lines_left > 0 and (match := _PLAIN_SIZE.match(data, position)):
            start = match.end()
            end = start + int(match[1], 16)
            if end == start or data[end : end + 2] != b"\r\n":
                break
            spans.append(data[start:end])
            position = end + 2
            self._lines_left -= 1
        return position

    def _take_data(self, data: bytes, position: int, spans: list[bytes]) -> int:
        span = data[position : position + self.left]
        spans.append(span)
        self.left -= len(span)
        if self.left == 0:
            self._state, self.left = self._DATA_END, 2
        return position + len(span)

    def _take_data_end(self, data: bytes, position: int) -> int:
        expected = b"\r\n"[2 - self.left :]
        found = data[position : position + self.left]
        if not expected.startswith(found):
            raise FramingError("a chunk is longer than it said")
        self.left -= len(found)
        if self.left == 0:
            self._state = self._SIZE
        return position + len(found)

    def _take_line(self, data: bytes, position: int) -> int:
        """A size line, a trailer, or the empty line at the end; what came of it so far is kept if it is not whole."""
        self._lines_left -= 1
        end = data.find(b"\n", position, position + _MAX_SIZE_LINE)
        if end < 0:
            piece = data[position : position + _MAX_SIZE_LINE]
            self._line += piece
            self._check_partial_line(piece)
            return len(data)
        line = self._line + data[position : end + 1] if self._line else data[position : end + 1]
        self._line = b""
        if not line.endswith(b"\r\n"):
            raise FramingError("a line of the framing does not end with CR LF")
        line = line[:-2]
        if self._state == self._SIZE:
            match = _SIZE_LINE.fullmatch(line)
            if match is None:
                raise FramingError("a chunk has no proper size")
            self.left = int(match[1], 16)
            self._state = self._DATA
            if not self.left:
                self._state, self.trailers_at = self._TRAILERS, end + 1
        elif not line:
            self.done = True
        else:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > _MAX_TRAILERS:
                raise FramingError("the trailers are too long")
            trailer = parse_trailer(line, refuse_framing=not self._of_answer)
            if trailer is not None:
                self.trailers.append(trailer)
        return end + 1

    def _check_partial_line(self, piece: bytes) -> None:
        line = self._line
        if len(line) >= _MAX_SIZE_LINE:
            raise FramingError("a line of the framing is too long")
        if self._state != self._SIZE:
            return
        looks_right = (
            _SIZE_LINE_START.fullmatch(line)
            if len(line) <= _READ_AGAIN or len(line) == len(piece)
            else _TEXT_OF_LINE.fullmatch(piece)
        )
        if not looks_right:
            raise FramingError("a chunk has no proper size")


def whole_chunk_prefixes(limit: int) -> dict[int, bytes]:
    """Size line of the chunk that makes up a read, by the length of that read, up to ``limit`` bytes.

    A server writes a token as one chunk and mostly it is read so. Then two comparisons find all that a scan would.
    """
    prefixes = {}
    for size in range(1, limit):
        prefix = b"%x\r\n" % size
        if (total := len(prefix) + size + 2) <= limit:
            prefixes[total] = prefix
    return prefixes
