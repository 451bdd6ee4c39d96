"""Where the plugin inside vLLM connects to report the engine's steps. One connection for each of its API servers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from prefillwatch.core.inputs import EngineLinks, EngineStep
from prefillwatch.engine.step_report import MAX_PACKET_BYTES, StepReport, decode

#: More API servers than this are not listened to.
MAX_LINKS: Final = 64
_BACKLOG: Final = 16
#: Packets of one link taken in a row, so that others get their turn.
_PACKETS_IN_A_ROW: Final = 64

log = logging.getLogger(__name__)


class EngineLink:
    """Hands every step to ``take`` with the number of the link it came by, which is never used again."""

    def __init__(self, path: str, take: Callable[[EngineStep], None]) -> None:
        self.unreadable = 0
        self._path = path
        self._take = take
        self._numbers = itertools.count(1)
        self._listener: socket.socket | None = None
        self._inode = -1  # of the socket that we made
        self._links: dict[int, socket.socket] = {}
        self._dropped: dict[int, int] = {}
        self._dropped_before = 0  # by links that are gone

    def counts(self) -> EngineLinks:
        """How the links go; dropped are steps that the plugins could not report."""
        return EngineLinks(len(self._links), self._dropped_before + sum(self._dropped.values()), self.unreadable)

    def open(self) -> None:
        """Listen, in the running event loop. Where that cannot be, it is said, and no steps are reported."""
        try:
            _clear_away(self._path)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            try:
                listener.bind(self._path)
                listener.listen(_BACKLOG)
            except OSError:
                listener.close()
                raise
        except OSError as error:
            log.error("engine_socket: cannot listen on %s: %s; choose another path", self._path, error.strerror)
            return
        self._listener = listener
        self._inode = _inode(self._path)
        asyncio.get_running_loop().add_reader(listener, self._accept)

    def close(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
            with contextlib.suppress(OSError):
                if _inode(self._path) == self._inode:  # somebody else may listen there by now
                    Path(self._path).unlink()
        for number in list(self._links):
            self._leave(number)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            link, _ = self._listener.accept()
        except OSError:  # it went away again, or there are no descriptors left
            return
        if len(self._links) >= MAX_LINKS:
            link.close()
            return
        link.setblocking(False)
        number = next(self._numbers)
        self._links[number] = link
        asyncio.get_running_loop().add_reader(link, self._read, number, link)

    def _read(self, number: int, link: socket.socket) -> None:
        for _ in range(_PACKETS_IN_A_ROW):
            try:
                data = link.recv(MAX_PACKET_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                self._leave(number)
                return
            self._packet(number, data)

    def _packet(self, number: int, data: bytes) -> None:
        try:
            packet = decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.unreadable += 1
            return
        self._dropped[number] = packet.dropped
        for report in packet.steps:
            self._step(number, report)

    def _step(self, number: int, report: StepReport) -> None:
        try:
            self._take(EngineStep(number, report))
        except (ValueError, ArithmeticError, LookupError):  # figures that cannot be; those behind it may be good
            self.unreadable += 1

    def _leave(self, number: int) -> None:
        link = self._links.pop(number)
        asyncio.get_running_loop().remove_reader(link)
        link.close()
        self._dropped_before += self._dropped.pop(number, 0)


def _clear_away(path: str) -> None:
    """A socket that an earlier process of ours left behind keeps nobody else from listening.

    Raises OSError, and so it does where somebody listens there: the plugin would report to us what is meant for them.
    """
    if not Path(path).is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(path)
        except BlockingIOError:
            pass  # so many wait there that there is no room for one more
        except OSError:
            Path(path).unlink(missing_ok=True)
            return
    raise OSError(errno.EADDRINUSE, "another process listens there")


def _inode(path: str) -> int:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return -1
