"""The relay's end of its line to the supervisor: a sign of life every second, and whose clients to welcome meanwhile.

A relay that is alive and turns its loop says so; one that hangs, is stopped or can no longer accept does not have to be
asked. The other way comes, whenever it changes, the list of listeners of other relays that are away: as long as they
are, their clients are welcomed here instead of waiting for them.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from prefillwatch.relay.reactor import Reactor

#: Descriptors that one message of the supervisor may carry; the kernel takes no more (SCM_MAX_FD).
MOST_LISTENERS: Final = 253
_LONGEST_MESSAGE: Final = 64


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """One sign of life. ``accepting``: new connections are taken. ``hearing``: since the one before, a byte of an
    answer came from upstream, which therefore lives. ``failures`` counts connections to upstream that could not be
    made."""

    accepting: bool = True
    hearing: bool = False
    failures: int = 0


_decoder = msgspec.json.Decoder(Pulse)


def decode_pulse(data: bytes) -> Pulse:
    """Raises msgspec.DecodeError when the bytes are none."""
    return _decoder.decode(data)


class SupervisorLine:
    """A packet socket whose other end the supervisor holds. It never blocks; what does not fit is not said."""

    def __init__(self, reactor: Reactor, fd: int, cover: Callable[[Sequence[socket.socket]], None]) -> None:
        """``cover`` takes the listeners of others that are to be served from now on, instead of those before."""
        self._cover = cover
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        reactor.register(fd, self._on_event, select.EPOLLIN)
        self._reactor = reactor

    def beat(self, pulse: Pulse) -> None:
        with contextlib.suppress(OSError):
            self._socket.send(msgspec.json.encode(pulse))

    def close(self) -> None:
        self._reactor.close(self._socket)

    def _on_event(self, _events: int) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, _LONGEST_MESSAGE, MOST_LISTENERS)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, descriptors = b"", []
        if data:
            self._cover([socket.socket(fileno=descriptor) for descriptor in descriptors])
        else:  # the supervisor is gone
            self._reactor.forget(self._socket.fileno())
