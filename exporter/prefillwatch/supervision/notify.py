"""What systemd is notified of, where it asks for it: sd_notify(3)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, MutableMapping
from typing import Final

_SOCKET: Final = "NOTIFY_SOCKET"
_WATCHDOG: Final = "WATCHDOG_USEC"
_WATCHDOG_PID: Final = "WATCHDOG_PID"


class SystemdNotify:
    """Says that we are ready, that we live, and that we end. Without systemd it says nothing.

    It never blocks: what systemd cannot take at once is not said. The variables are taken out of the environment, since
    systemd means this process and no child of it.
    """

    def __init__(self, environ: MutableMapping[str, str], pid: int) -> None:
        """Raises nothing: a variable that cannot be read counts as absent."""
        self._address = _socket_address(environ.pop(_SOCKET, ""))
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        limit_s, meant = environ.pop(_WATCHDOG, ""), environ.pop(_WATCHDOG_PID, "")
        is_ours = self._address and limit_s.isdigit() and meant in ("", str(pid))
        #: How often systemd wants to hear from us, in seconds; 0: it does not.
        self.pulse_s = int(limit_s) / 2e6 if is_ours else 0.0

    def ready(self) -> None:
        """Clients are served."""
        self._say("READY=1")

    def stopping(self) -> None:
        """Running answers may finish, then we end."""
        self._say("STOPPING=1")

    async def live(self, is_well: Callable[[], bool] = lambda: True) -> None:
        """Report that our loop runs and all is well, twice in the time after which we would be taken for dead. Where it
        is not well for as long, another start is the remedy. Ends when cancelled."""
        while self.pulse_s:
            if is_well():
                self._say("WATCHDOG=1")
            await asyncio.sleep(self.pulse_s)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _say(self, line: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # its queue is full, or it is gone
                self._socket.sendto(line.encode(), self._address)


def _socket_address(text: str) -> str:
    """A path, or an abstract name, which is written with an @."""
    return text.replace("@", "\0", 1) if text.startswith("@") else text
