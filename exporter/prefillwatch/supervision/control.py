"""The supervisor's end of the control channel to the observer. It never blocks and never waits for the observer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

from prefillwatch.settings.control import READY_LINE, Control, encode_control

_RETRY_S: Final = 0.5
#: Ticks that an observer may leave the channel full. It holds some hundred states: an observer that fills it has stood
#: still for minutes.
PATIENCE: Final = 60


class ControlChannel:
    """Sends one observer process the newest `Control`, and hears when it is ready."""

    def __init__(self, on_ready: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ours, self.theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._on_ready: Callable[[], None] | None = on_ready
        self._latest: bytes | None = None
        self._behind = 0
        self._loop.add_reader(self._ours, self._read)

    def handed_over(self) -> None:
        """The observer has its end now. We close our copy of it, so that each side sees the other's end."""
        self.theirs.close()

    def assume_ready(self) -> None:
        """Treat an observer as ready that has not said so."""
        if self._on_ready is not None:
            on_ready, self._on_ready = self._on_ready, None
            on_ready()

    @property
    def is_behind(self) -> bool:
        """Whether the newest state waits for room."""
        return self._latest is not None

    def tick(self) -> bool:
        """A second has passed. True: the observer takes nothing any more; starting another one would cost no token."""
        self._behind = self._behind + 1 if self.is_behind else 0
        return self._behind >= PATIENCE

    def tell(self, control: Control) -> None:
        """Send it; when the observer is behind, the newest one is sent as soon as there is room."""
        retrying = self.is_behind
        self._latest = encode_control(control)
        if not retrying:
            self._send()

    def close(self) -> None:
        """The observer reads the end of the channel and ends as well."""
        self._loop.remove_reader(self._ours)
        self._latest = None
        self._on_ready = None
        self._ours.close()
        self.theirs.close()

    def _send(self) -> None:
        if self._latest is None:
            return
        try:
            # A line fits one packet buffer of the kernel, so it goes whole or not at all.
            self._ours.send(self._latest)
        except BlockingIOError:
            self._loop.call_later(_RETRY_S, self._send)
            return
        except OSError:
            pass  # it has ended; the next observer gets a channel of its own
        self._latest = None

    def _read(self) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = self._ours.recv(4096)
        if not data:
            self._loop.remove_reader(self._ours)
        elif READY_LINE in data:
            self.assume_ready()
