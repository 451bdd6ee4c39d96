"""Streams of one JSON object per line, as Ollama's: each line is an event of that payload alone."""

from __future__ import annotations

from prefillwatch.wire.sse import Event, EventParser


class LineParser:
    """As `EventParser`, and with its bounds, for lines."""

    __slots__ = ("_events", "_within")

    def __init__(self) -> None:
        self._events = EventParser()
        self._within = False  # a line

    @property
    def idle(self) -> bool:
        return not self._within

    @property
    def comments(self) -> int:
        return self._events.comments

    @property
    def given_up(self) -> int:
        return self._events.given_up

    def feed(self, data: bytes) -> list[Event]:
        """The lines that these bytes complete."""
        found: list[Event] = []
        *lines, rest = data.split(b"\n")
        for line in lines:
            found += self._events.feed(self._begun(line) + b"\n\n")
            self._within = False
        if rest:
            found += self._events.feed(self._begun(rest))
            self._within = True
        return found

    def finish(self) -> list[Event]:
        """The line that lacks only its end."""
        return self._events.finish()

    def resync(self) -> None:
        """Bytes were lost here: go on with the next line."""
        self._events.resync()
        self._within = True

    def _begun(self, piece: bytes) -> bytes:
        return piece if self._within else b"data: " + piece
