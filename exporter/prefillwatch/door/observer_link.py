"""How connections get from the door to the admin server of the observer: as one end of a socket pair, passed along.

There is no address that others could connect to, and nothing on a disk. Each observer process gets a channel of
its own, so that what waited for one that died is known to be lost at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final

from prefillwatch.door.conversation import NotThereError

#: Requests passed on and not answered yet, at most; the live page's viewers, who stay, are among them.
MOST_AT_ONCE: Final = 128
#: How long a request waits for an observer that is being started; its whole beginning takes a second or two.
_PATIENCE_S: Final = 6.0
_HERE: Final = b"connection"


class ObserverLink:
    """The door's end. It never blocks."""

    def __init__(self) -> None:
        self._channel: socket.socket | None = None
        self._theirs: socket.socket | None = None
        self._there = asyncio.Event()
        self._why_not = "the observer has not started yet"
        self._hopeless = False
        self._passed: set[asyncio.StreamWriter] = set()

    def new_channel(self) -> int:
        """Descriptor of the other end, for an observer that is to be started."""
        self.lost("")
        self._channel, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setblocking(False)
        return self._theirs.fileno()

    def handed_over(self) -> None:
        """The observer has its end now."""
        if self._theirs is not None:
            self._theirs.close()
            self._theirs = None
        self._there.set()

    def lost(self, why: str, *, hopeless: bool = False) -> None:
        """There is no observer, for the reason given. ``hopeless``: waiting for the next one is no use."""
        self._there.clear()
        self._why_not, self._hopeless = why, hopeless
        for opened in (self._channel, self._theirs):
            if opened is not None:
                opened.close()
        self._channel = self._theirs = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A new connection to it. Waits for it while it starts. Raises NotThereError."""
        self._passed = {writer for writer in self._passed if not writer.is_closing()}
        if len(self._passed) >= MOST_AT_ONCE:
            raise NotThereError(f"{MOST_AT_ONCE} requests are being answered already; ask again")
        if not self._there.is_set():
            if self._hopeless:
                raise NotThereError(self._why_not)
            await self._wait()
        assert self._channel is not None
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            socket.send_fds(self._channel, [_HERE], [theirs.fileno()])
        except OSError as error:  # its queue is full, or it has just ended
            ours.close()
            raise NotThereError(f"the observer is busy: it does not take requests ({error.strerror})") from None
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours)
        self._passed.add(writer)
        return reader, writer

    async def _wait(self) -> None:
        try:
            await asyncio.wait_for(self._there.wait(), _PATIENCE_S)
        except asyncio.TimeoutError:
            raise NotThereError(self._why_not) from None


def take_passed(channel: socket.socket, most: int = 16) -> list[socket.socket] | None:
    """The observer's end: connections that were passed on and wait. None: there will be no more."""
    taken: list[socket.socket] = []
    with contextlib.suppress(BlockingIOError, InterruptedError):
        while len(taken) < most:
            data, descriptors, _, _ = socket.recv_fds(channel, len(_HERE), 1)
            taken += [socket.socket(fileno=descriptor) for descriptor in descriptors]
            if not data:
                return taken or None
    return taken
