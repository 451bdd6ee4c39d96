"""Options that every connection of ours gets."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import sys
import termios
from typing import Final

#: A peer whose machine vanished is found out after two minutes of silence, however long the answer may take.
_KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
)


def prepare(opened: socket.socket) -> None:
    """Make a stream socket ours: it never blocks, holds nothing back, and notices a vanished peer."""
    opened.setblocking(False)
    if opened.family != socket.AF_UNIX:
        with contextlib.suppress(OSError):  # the peer may be gone already; reading will tell
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for level, option, value in _KEEPALIVE:
                opened.setsockopt(level, option, value)


def unacknowledged(opened: socket.socket) -> int:
    """Bytes that were sent and have not arrived on the other machine yet, as far as the kernel can tell (of a Unix
    socket: that were not read yet).

    An end of the other side that was sent after all had arrived acknowledges all. So once it has ended, some are left
    only if it was closed before they came: the server cannot have read them.
    """
    try:
        answer = fcntl.ioctl(opened.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    except OSError:
        return 0
    return int.from_bytes(answer, sys.byteorder)


def limit_unacknowledged(opened: socket.socket, seconds: float) -> None:
    """Take the other side for gone when it does not acknowledge what it was sent for so long."""
    if opened.family != socket.AF_UNIX:
        with contextlib.suppress(OSError):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(seconds * 1000))


def acknowledge_late(opened: socket.socket) -> None:
    """Let the kernel acknowledge every other read of a stream instead of each: an acknowledgement sent from our reads
    costs a sixth of what relaying a token does.

    The kernel goes back to its quick acknowledgements by itself at the first one that was due for 40 ms, so a server
    with Nagle's algorithm on, which holds tokens back until then, does so once at most.
    """
    if opened.family != socket.AF_UNIX:
        with contextlib.suppress(OSError):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)


def acknowledges_late(opened: socket.socket) -> bool:
    """Whether the kernel still does; as a Unix socket always."""
    if opened.family == socket.AF_UNIX:
        return True
    return not opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
