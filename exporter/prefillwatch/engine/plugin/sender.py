"""The plugin's end of the link to a sidecar. Nothing here waits: what cannot be sent at once is dropped and counted."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

from prefillwatch.engine.step_report import MAX_PACKET_BYTES, Packet, StepReport, encode
from prefillwatch.units import NS

#: A sidecar that is not there is looked for again after this long.
RETRY_NS: Final = NS
#: A full batch of steps of a large engine stays far below the size of a packet.
_STEPS_IN_A_PACKET: Final = 16


class Sender:
    """Sends to the sidecar that listens at ``path`` at the time, if there is one."""

    def __init__(self, path: str, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.dropped = 0
        self._path = path
        self._clock = clock
        self._socket: socket.socket | None = None
        self._retry_ns = 0

    def send(self, steps: Sequence[StepReport]) -> None:
        for first in range(0, len(steps), _STEPS_IN_A_PACKET):
            part = list(steps[first : first + _STEPS_IN_A_PACKET])
            if not self._send(encode(Packet(part, self.dropped))):
                self.dropped += len(part)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, packet: bytes) -> bool:
        link = self._socket or self._connect()
        if link is None or len(packet) > MAX_PACKET_BYTES:
            return False
        try:
            link.send(packet, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:  # it does not keep up
            return False
        except OSError:  # it is gone; another may take its place
            self.close()
            return False
        return True

    def _connect(self) -> socket.socket | None:
        now_ns = self._clock()
        if now_ns < self._retry_ns:
            return None
        self._retry_ns = now_ns + RETRY_NS
        with contextlib.suppress(OSError):
            link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            try:
                link.connect(self._path)
            except OSError:
                link.close()
            else:
                self._socket = link
        return self._socket
