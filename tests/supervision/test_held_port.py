"""The port of a server that we start: nobody gets it by chance, and a stranger on it is noticed."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from prefillwatch.supervision.held_port import HeldPort, listening_users

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 52 1 0 100 0 0 10 0
   1: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 53 1 0 100 0 0 10 0
   2: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1002        0 54 1 0 100 0 0 10 0
"""


def test_nobody_gets_it_by_chance() -> None:
    held = HeldPort()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", held.take()))
    held.close()


@pytest.mark.parametrize("option", [socket.SO_REUSEADDR, socket.SO_REUSEPORT])
def test_a_server_that_allows_for_addresses_in_use_takes_it(option: int) -> None:
    held = HeldPort()
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, option, 1)
        server.bind(("127.0.0.1", held.take()))
        server.listen()
        with socket.create_connection(("127.0.0.1", held.port)) as client:
            accepted, _ = server.accept()
            accepted.sendall(b"mine")
            assert client.recv(4) == b"mine"
            accepted.close()
        assert held.stranger() is None
    held.close()


def test_a_server_of_asyncio_takes_it() -> None:
    async def go() -> None:
        held = HeldPort()
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", held.take())
        server.close()
        await server.wait_closed()
        held.close()

    asyncio.run(go())


def test_whose_listener_is_there_is_read_from_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "tcp"
    table.write_text(TABLE)
    tables = (str(table), str(tmp_path / "missing"))
    assert listening_users(8080, tables) == {1001}
    assert listening_users(8081, tables) == {0}
    assert listening_users(8082, tables) == set()
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = HeldPort()
        held.port = server.getsockname()[1]
        assert held.stranger() is None
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
        assert held.stranger() == os.getuid()


def test_without_a_port_nobody_is_a_stranger() -> None:
    assert HeldPort().stranger() is None
