"""The two ends of a tap. The supervisor holds both, so that a process that is started again finds its own as it was."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

#: Room for the tap while the observer is away or busy; as much of it as the system allows.
_BUFFER_BYTES: Final = 16 * 2**20
_SO_SNDBUFFORCE: Final = 32  # asm-generic/socket.h: past the system's limit, for root only
_SO_RCVBUFFORCE: Final = 33


def tap_pair() -> tuple[socket.socket, socket.socket]:
    """(relay's end, observer's end) of a packet socket with as much buffer as allowed; both never block."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
        _raise_buffer(end, socket.SO_SNDBUF, _SO_SNDBUFFORCE)
        _raise_buffer(end, socket.SO_RCVBUF, _SO_RCVBUFFORCE)
    return ends


def _raise_buffer(end: socket.socket, option: int, forced_option: int) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)  # cut to the system's limit
    with contextlib.suppress(OSError):  # not privileged: the limit stays
        end.setsockopt(socket.SOL_SOCKET, forced_option, _BUFFER_BYTES)
