"""Server-sent events: framing of an event stream in linear time, with bounded memory.

Only LF, CR and CRLF end a line; the Unicode separators that `str.splitlines` knows are legal inside an event. Every
byte is searched once: a piece of a line without an end is put aside and not looked at again. An event that grows beyond
the limit is given up, counted, and reading goes on after the next blank line.
"""

from __future__ import annotations

from typing import Final

#: (event name, data lines joined by LF); the name is empty where the stream gives none.
Event = tuple[bytes, bytes]

MAX_EVENT_BYTES: Final = 1024 * 1024

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_COMMENT: Final = ord(":")
# Bytes that can only stand at the start of a line: inside a JSON string the quote would be escaped.
_EVENT_STARTS: Final = (b'data: {"', b'data:{"', b"event: ")


class EventParser:
    """Cuts a byte stream into events. `comments` and `given_up` count what was skipped."""

    __slots__ = (
        "_after_cr",
        "_data",
        "_limit",
        "_line",
        "_line_cut",
        "_name",
        "_resyncing",
        "_size",
        "_skipping",
        "_start",
        "comments",
        "given_up",
    )

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self.comments = 0
        self.given_up = 0
        self._limit = limit
        self._line: list[bytes] = []  # pieces of the line that has not ended yet
        self._data: list[bytes] = []  # data lines of the event that has not ended yet
        self._name = b""
        self._size = 0  # bytes held by the two lists
        self._after_cr = False  # a CR ended the last line: an LF that follows belongs to it
        self._skipping = False  # until the next blank line nothing is kept
        self._line_cut = False  # while skipping: the current line has had bytes, so it is not blank
        self._resyncing = False
        self._start: bytes | None = b""  # first bytes of the stream, until a byte-order mark is seen or ruled out

    @property
    def idle(self) -> bool:
        """True between events, when what comes next is the start of a line that starts an event."""
        return not (self._size or self._name or self._after_cr or self._skipping or self._start is not None)

    @property
    def untouched(self) -> bool:
        """Nothing has come yet."""
        return self._start == b""

    def begin(self) -> None:
        """The stream has begun, and what came of it so far were whole events."""
        self._start = None

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete."""
        is_one_line = data.startswith(b"data: ") and data.find(b"\n") == len(data) - 2 and data.endswith(b"\n\n")
        if is_one_line and self.idle and b"\r" not in data and len(data) <= self._limit:
            return [(b"", data[6:-2])]
        if self._start is not None:
            data = self._without_mark(data)
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == 0x0A:
                data = data[1:]
        if self._resyncing and data:
            data = self._find_start(data)
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return self._lines(data)

    def finish(self) -> list[Event]:
        """The event that lacks only its blank line at the end of the stream, if there is one."""
        return self._lines(b"\n\n")

    def resync(self) -> None:
        """Bytes were lost here: forget the event at hand and go on with the next one."""
        self._forget()
        self._start = None
        self._after_cr = False
        self._skipping = self._line_cut = self._resyncing = True

    def _without_mark(self, data: bytes) -> bytes:
        start = (self._start or b"") + data
        if len(start) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(start):
            self._start = start
            return b""
        self._start = None
        return start.removeprefix(_BYTE_ORDER_MARK)

    def _find_start(self, data: bytes) -> bytes:
        """After lost bytes: most holes end where a read ended, and so right before an event."""
        self._resyncing = False
        rest = data.lstrip(b"\r\n")
        if not rest.startswith(_EVENT_STARTS):
            return data
        self._skipping = self._line_cut = False
        return rest

    def _lines(self, data: bytes) -> list[Event]:
        lines = data.split(b"\n")
        rest = lines.pop()
        events: list[Event] = []
        for line in lines:
            if self._line or self._line_cut:
                line = self._whole_line(line)
            self._end_line(line, events)
        if rest:
            self._keep(rest)
        return events

    def _whole_line(self, end: bytes) -> bytes:
        if self._line_cut:
            self._line_cut = False
            return b":"  # stands for any line that is not blank; while skipping nothing else matters
        self._line.append(end)
        line = b"".join(self._line)
        self._size -= len(line) - len(end)
        self._line.clear()
        return line

    def _keep(self, piece: bytes) -> None:
        if self._skipping:
            self._line_cut = True
            return
        self._line.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            self._give_up()
            self._line_cut = True

    def _end_line(self, line: bytes, events: list[Event]) -> None:
        if not line:
            if self._data:
                events.append((self._name, self._data[0] if len(self._data) == 1 else b"\n".join(self._data)))
            self._forget()
        elif self._skipping:
            return
        elif line.startswith(b"data: "):  # nearly always
            self._add_data(line[6:])
        elif line[0] == _COMMENT:
            self.comments += 1
        else:
            field, _, value = line.partition(b":")
            if field == b"data":
                self._add_data(value.removeprefix(b" "))
            elif field == b"event":
                self._name = value.removeprefix(b" ")[:256]

    def _add_data(self, value: bytes) -> None:
        self._data.append(value)
        self._size += len(value) + 1
        if self._size > self._limit:
            self._give_up()

    def _give_up(self) -> None:
        self.given_up += 1
        self._forget()
        self._skipping = True

    def _forget(self) -> None:
        self._data.clear()
        self._line.clear()
        self._name = b""
        self._size = 0
        self._skipping = self._line_cut = False
