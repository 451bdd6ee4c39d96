"""The supervisor's end of the line to one relay: hears its signs of life, tells it whose clients to welcome."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence

import msgspec

from prefillwatch.relay.supervisor_line import MOST_LISTENERS, Pulse, decode_pulse


class RelayLine:
    """One line for all processes that one relay has in turn; ``theirs`` is what they inherit."""

    def __init__(self) -> None:
        self._ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._ours, self.theirs):
            end.setblocking(False)
        self._covered: tuple[int, ...] | None = None

    def listen(self, pulsed: Callable[[Pulse], None]) -> None:
        """Call upon every sign of life, from now on."""
        asyncio.get_running_loop().add_reader(self._ours.fileno(), self._read, pulsed)

    def renew(self) -> None:
        """Another process begins: what the one before said or heard no longer counts."""
        for end in (self._ours, self.theirs):
            with contextlib.suppress(OSError):
                while end.recv(4096):
                    pass
        self._covered = ()

    def cover(self, listeners: Sequence[socket.socket]) -> None:
        """Have the relay accept on these too, instead of those named before."""
        wanted = tuple(each.fileno() for each in listeners[:MOST_LISTENERS])
        if wanted == self._covered:
            return
        with contextlib.suppress(OSError):  # it hangs or is gone, so it cannot stand in for others
            socket.send_fds(self._ours, [b"cover"], list(wanted))
            self._covered = wanted

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # no loop any more
            asyncio.get_running_loop().remove_reader(self._ours.fileno())
        self._ours.close()
        self.theirs.close()

    def _read(self, pulsed: Callable[[Pulse], None]) -> None:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            pulsed(decode_pulse(self._ours.recv(4096)))
