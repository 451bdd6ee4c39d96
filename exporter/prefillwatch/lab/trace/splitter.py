"""A trace cut into its events as it comes, without holding it: bytes in, the bytes of whole events out. Pure.

Both forms of the Chrome trace format are known: an object with a `traceEvents` list, which the torch profiler writes,
and the bare list. Only the structure is looked at here (strings, braces, brackets); what an event says is not.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Final

from prefillwatch.lab.trace.errors import TraceError

#: No event of the profiler is nearly as large; the bound limits memory when a file is broken.
LARGEST_EVENT: Final = 16 << 20
#: An event larger than this is not scanned again for every few bytes that arrive.
LARGE: Final = 64 << 10

_STRING: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_FLAT: Final = rb'[^{}\[\]"]*(?:' + _STRING + rb'[^{}\[\]"]*)*'


def _around(inner: bytes) -> bytes:
    """A balanced object or list whose members are flat or match `inner`."""
    members = _FLAT + rb"(?:" + inner + _FLAT + rb")*"
    return rb"(?:\{" + members + rb"\}|\[" + members + rb"\])"


#: One match per event instead of one per brace makes splitting four times as fast; deeper events are counted through.
#: At each byte the expression has one way to go on, so that a failed match costs no more than one that succeeds.
_INNERMOST: Final = rb"(?:\{" + _FLAT + rb"\}|\[" + _FLAT + rb"\])"
_EVENT: Final = re.compile(
    rb"\{" + _FLAT + rb"(?:" + _around(_around(_around(_INNERMOST))) + _FLAT + rb")*\}", re.DOTALL
)
_TOKEN: Final = re.compile(_STRING + rb'|[{}\[\]]|"', re.DOTALL)
_BETWEEN: Final = re.compile(rb"[\s,]*")
_LIST_FOLLOWS: Final = re.compile(rb"\s*:\s*\[")
_LONGEST_COLON: Final = 1000  # white space around it included
_UTF8_MARK: Final = b"\xef\xbb\xbf"


class _Place(enum.Enum):
    START = enum.auto()
    #: In the object, before the list of events.
    HEAD = enum.auto()
    EVENTS = enum.auto()
    #: Behind the list.
    TAIL = enum.auto()


class EventSplitter:
    """`feed` bytes and get events, then `finish` for the last ones. TraceError names what is no trace, and where.

    `events_end` is the offset just behind the last event, where more can be added.
    """

    __slots__ = (
        "_base",
        "_buffer",
        "_depth",
        "_is_list",
        "_last_byte",
        "_place",
        "_position",
        "_waiting",
        "_waiting_size",
        "events",
        "events_end",
    )

    def __init__(self) -> None:
        self.events = 0
        self.events_end: int | None = None
        self._place = _Place.START
        self._buffer = b""
        self._base = 0  # offset in the file of the buffer's first byte
        self._position = 0  # how far the buffer is done
        self._waiting: list[bytes] = []
        self._waiting_size = 0
        self._depth = 0
        self._is_list = False
        self._last_byte = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The events that these bytes complete; those of a very large event may come a little later."""
        self._waiting.append(data)
        self._waiting_size += len(data)
        left = len(self._buffer) - self._position
        if left + self._waiting_size > LARGEST_EVENT + len(data):
            raise TraceError(f"something of more than 16 MiB begins at {self._here}; it is no trace, or damaged")
        # An incomplete event is scanned from its start again, but only once it has doubled, so that this stays cheap.
        if left < LARGE or self._waiting_size >= left:
            yield from self._take()

    def finish(self) -> Iterator[bytes]:
        """The events that are left at the end. Raises TraceError unless the trace came to its end."""
        yield from self._take()
        if self._place is _Place.START:
            raise TraceError("it is empty")
        if self._place is _Place.HEAD:
            raise TraceError('it holds no "traceEvents" list; is it a trace of the torch profiler?')
        # The format lets a bare list go without its closing bracket, so that a process may die while it writes one.
        if self._is_list and self._place is _Place.EVENTS and not self._buffer[self._position :].strip(b" \t\r\n,"):
            return
        if self._place is _Place.EVENTS or (not self._is_list and self._last_byte != b"}"):
            raise TraceError(f"it ends in the middle, after {self.events:,} events; it was cut off")

    def _take(self) -> Iterator[bytes]:
        self._base += self._position
        self._buffer = b"".join((self._buffer[self._position :], *self._waiting))
        self._position = 0
        self._waiting.clear()
        self._waiting_size = 0
        if self._place is _Place.START:
            self._start()
        if self._place is _Place.HEAD:
            self._look_for_events()
        if self._place is _Place.EVENTS:
            yield from self._cut()
        if self._place is _Place.TAIL:
            rest = self._buffer[self._position :].rstrip()
            self._last_byte = rest[-1:] or self._last_byte
            self._position = len(self._buffer)

    @property
    def _here(self) -> str:
        return f"byte {self._base + self._position:,}"

    def _start(self) -> None:
        text = self._buffer.removeprefix(_UTF8_MARK) if self._base == 0 else self._buffer
        first = text.lstrip()[:1]
        if not first or (len(self._buffer) < 3 and _UTF8_MARK.startswith(self._buffer)):
            return
        if first not in (b"{", b"["):
            shown = text.lstrip()[:20].decode(errors="replace")
            raise TraceError(f"it begins with {shown!r}, so it is no JSON; a trace begins with {{ or [")
        self._position = self._buffer.index(first) + 1
        self._is_list = first == b"["
        self._depth = 1
        self._place = _Place.EVENTS if self._is_list else _Place.HEAD
        if self._is_list:
            self.events_end = self._base + self._position

    def _look_for_events(self) -> None:
        for token in _TOKEN.finditer(self._buffer, self._position):
            text = token.group()
            if text == b'"':  # a string that is not all here yet
                self._position = token.start()
                return
            if text == b'"traceEvents"' and self._depth == 1:
                if self._enter_list(token.end()):
                    return  # at its list, or waiting for what follows the key
            elif text in (b"{", b"["):
                self._depth += 1
            elif text in (b"}", b"]"):
                self._depth -= 1
                if self._depth == 0:
                    raise TraceError('it holds no "traceEvents" list; is it a trace of the torch profiler?')
            self._position = token.end()
        if self._position < len(self._buffer) and b'"' not in self._buffer[self._position :]:
            self._position = len(self._buffer)

    def _enter_list(self, behind_key: int) -> bool:
        """Whether the list begins here, or what follows the key is not all here yet."""
        if opened := _LIST_FOLLOWS.match(self._buffer, behind_key):
            self._position = opened.end()
            self.events_end = self._base + self._position
            self._place = _Place.EVENTS
            return True
        rest = self._buffer[behind_key : behind_key + _LONGEST_COLON].lstrip()
        if rest in (b"", b":") or (rest[:1] == b":" and not rest[1:].strip()):
            self._position = behind_key - len(b'"traceEvents"')
            return True
        if rest[:1] == b":":
            raise TraceError(f'"traceEvents" at {self._here} is no list')
        return False  # a string value that happens to be this word

    def _cut(self) -> Iterator[bytes]:
        buffer, position = self._buffer, self._position
        size = len(buffer)
        while True:
            position = _BETWEEN.match(buffer, position).end()  # type: ignore[union-attr]  # matches the empty string
            self._position = position
            if position >= size:
                return
            if buffer[position] != 0x7B:  # {
                self._leave_list()
                return
            found = _EVENT.match(buffer, position)
            end = found.end() if found else _balanced_end(buffer, position)
            if end < 0:
                return
            self.events += 1
            self.events_end = self._base + end
            self._position = end
            yield buffer[position:end]
            position = end

    def _leave_list(self) -> None:
        if self._buffer[self._position] != 0x5D:  # ]
            shown = self._buffer[self._position : self._position + 20].decode(errors="replace")
            raise TraceError(f"an event should begin at {self._here}, but there is {shown!r}; it is damaged")
        self._position += 1
        self._last_byte = b"]"
        self._place = _Place.TAIL


def _balanced_end(buffer: bytes, start: int) -> int:
    """Where the object that begins at `start` ends, however deep; -1 if not in this buffer."""
    depth = 0
    for token in _TOKEN.finditer(buffer, start):
        text = token.group()
        if text in (b"{", b"["):
            depth += 1
        elif text in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                return token.end()
        elif text == b'"':
            return -1
    return -1
