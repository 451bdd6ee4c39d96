"""The port of a server that we start, kept from all others until the server has it.

A server takes its port seconds or a minute after it was given the number, which is in ``ps`` meanwhile. So we have
it ourselves from the beginning, without listening: no other process gets it by chance, and a server that allows for
addresses in use (SO_REUSEADDR, as all those that we know do) takes it all the same. Another user who means to can still
do what that server does; so it is looked up whose listener answers there.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

_LOOPBACK: Final = "127.0.0.1"
_LISTENING: Final = "0A"  # include/net/tcp_states.h
_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
#: Columns of these tables, see proc(5): local address, state, user.
_ADDRESS, _STATE, _USER = 1, 3, 7


class HeldPort:
    """Holds no port until `take`."""

    def __init__(self) -> None:
        self.port = 0
        self._socket: socket.socket | None = None

    def take(self) -> int:
        """A free loopback port, ours until `close`."""
        self._socket = held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((_LOOPBACK, 0))
        self.port = held.getsockname()[1]
        return self.port

    def stranger(self) -> int | None:
        """The user who listens on it, if that is another than ours."""
        users = listening_users(self.port) if self.port else set()
        return next(iter(users - {os.geteuid()}), None)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def listening_users(port: int, tables: tuple[str, ...] = _TABLES) -> set[int]:
    """The users whose processes listen on this TCP port, on any address; none where the system does not say."""
    users = set()
    for table in tables:
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for columns in map(str.split, lines):
            if columns[_STATE] == _LISTENING and int(columns[_ADDRESS].rpartition(":")[2], 16) == port:
                users.add(int(columns[_USER]))
    return users
