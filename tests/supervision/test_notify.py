"""What systemd hears, by its own protocol."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from prefillwatch.supervision.notify import SystemdNotify

PID = 4711


@pytest.fixture(params=["path", "abstract name"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """Its end of the socket, and what it writes into the environment."""
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.setblocking(False)
        end.bind(name if request.param == "path" else f"\0{name}")
        yield end, name if request.param == "path" else f"@{name}"


def heard(end: socket.socket) -> list[bytes]:
    lines = []
    with contextlib.suppress(BlockingIOError):
        while True:
            lines.append(end.recv(4096))
    return lines


def test_hears_of_the_start_and_the_end(systemd: tuple[socket.socket, str]) -> None:
    end, address = systemd
    notify = SystemdNotify({"NOTIFY_SOCKET": address}, PID)
    notify.ready()
    notify.stopping()
    notify.close()
    assert heard(end) == [b"READY=1", b"STOPPING=1"]


def test_hears_nothing_while_another_start_would_help(systemd: tuple[socket.socket, str]) -> None:
    end, address = systemd
    notify = SystemdNotify({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "2000"}, PID)

    async def live(well: bool) -> list[bytes]:
        task = asyncio.create_task(notify.live(lambda: well))
        await asyncio.sleep(0.05)
        task.cancel()
        return heard(end)

    assert asyncio.run(live(False)) == []
    assert set(asyncio.run(live(True))) == {b"WATCHDOG=1"}
    notify.close()


def test_hears_twice_within_its_limit(systemd: tuple[socket.socket, str]) -> None:
    end, address = systemd
    notify = SystemdNotify({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "20000", "WATCHDOG_PID": str(PID)}, PID)
    assert notify.pulse_s == 0.01

    async def hear_twice() -> list[bytes]:
        task = asyncio.create_task(notify.live())
        lines: list[bytes] = []
        while len(lines) < 2:
            await asyncio.sleep(0.001)
            lines += heard(end)
        task.cancel()
        return lines

    assert set(asyncio.run(hear_twice())) == {b"WATCHDOG=1"}
    notify.close()


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": "20000"},
        {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "20000", "WATCHDOG_PID": str(PID + 1)},
        {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "soon"},
        {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "0"},
    ],
    ids=["no systemd", "no socket", "another process is meant", "no number", "no watchdog"],
)
def test_pulses_only_where_they_are_asked_for(environ: dict[str, str]) -> None:
    notify = SystemdNotify(environ, PID)
    assert notify.pulse_s == 0
    asyncio.run(notify.live())
    notify.ready()
    notify.close()


def test_children_are_not_told_of_it() -> None:
    environ = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "20000", "WATCHDOG_PID": str(PID), "PATH": os.defpath}
    SystemdNotify(environ, PID).close()
    assert environ == {"PATH": os.defpath}


def test_a_systemd_that_reads_nothing_holds_up_nobody(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "notify"))
        notify = SystemdNotify({"NOTIFY_SOCKET": str(tmp_path / "notify")}, PID)
        for _ in range(5000):
            notify.ready()
        notify.close()
