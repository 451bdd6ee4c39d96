"""Those who watch the live page: the same bytes for all of them, and none is waited for.

A viewer that does not keep up loses what it has not taken and begins anew with a fresh hello; one that has taken
nothing for long is no longer counted as one, and gives its place to the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

#: Viewers at once.
MOST_VIEWERS: Final = 16
#: Connections at once, with those of viewers that have stopped reading and are not rid of yet.
MOST_CONNECTIONS: Final = 48
#: Messages kept for a viewer that is busy: a second or two.
MOST_KEPT: Final = 8
#: Messages in a row that a viewer has lost when it is given up: half a minute or so.
MOST_LOST: Final = 200
#: After so long without news a viewer is notified that there is none: the connection lives, such as behind a recording
#: that has been played to its end.
IDLE_S: Final = 2.0
IDLE: Final = b"event: idle\ndata: {}\n\n"


class Viewer:
    """One connection's end: `next` is what to send."""

    def __init__(self, hello: Callable[[], bytes]) -> None:
        self.over = False
        self._hello = hello
        self._messages: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._lost = 0
        self.offer(hello())

    def offer(self, message: bytes) -> None:
        if self._lost or len(self._messages) >= MOST_KEPT:
            self._messages.clear()
            self._lost += 1
            if self._lost > MOST_LOST:
                self.end()
        else:
            self._messages.append(message)
        self._news.set()

    def end(self) -> None:
        self.over = True
        self._news.set()

    async def next(self) -> bytes | None:
        """The next bytes for this viewer; None when there will be no more."""
        try:
            await asyncio.wait_for(self._news.wait(), IDLE_S)
        except asyncio.TimeoutError:
            return IDLE
        if self.over:
            return None
        if self._lost:
            self._lost = 0
            message = self._hello()
        else:
            message = self._messages.popleft()
        if not self._messages:
            self._news.clear()
        return message


class Viewers:
    """All of them. ``begin`` is called before the first is let in, ``end`` after the last has left."""

    def __init__(self, begin: Callable[[], None], end: Callable[[], None], hello: Callable[[], bytes]) -> None:
        self._begin = begin
        self._end = end
        self._hello = hello
        self._watching: set[Viewer] = set()
        self._connections = 0

    def __len__(self) -> int:
        return len(self._watching)

    def join(self) -> Viewer | None:
        """A viewer more; None when there are enough. Everybody who joined must `leave`."""
        if len(self._watching) >= MOST_VIEWERS or self._connections >= MOST_CONNECTIONS:
            return None
        if not self._watching:
            self._begin()
        viewer = Viewer(self._hello)
        self._watching.add(viewer)
        self._connections += 1
        return viewer

    def leave(self, viewer: Viewer) -> None:
        viewer.end()
        self._connections -= 1
        self._forget(viewer)

    def _forget(self, viewer: Viewer) -> None:
        if viewer in self._watching:
            self._watching.remove(viewer)
            if not self._watching:
                self._end()

    def send(self, message: bytes) -> None:
        """Offer it to all, and wait for none."""
        for viewer in list(self._watching):
            viewer.offer(message)
            if viewer.over:
                self._forget(viewer)

    def close(self) -> None:
        """No more news: the server ends."""
        for viewer in self._watching:
            viewer.end()
