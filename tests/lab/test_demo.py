"""The demo with all its processes: what a newcomer sees, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from prefillwatch.errors import StartError
from prefillwatch.lab import demo as demo_module
from prefillwatch.lab.child import Child
from prefillwatch.lab.demo import DemoSettings, check, demo
from prefillwatch.own_process import python_module
from prefillwatch.settings.addresses import ListenAddress

ANY = ListenAddress("127.0.0.1", 0)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes find the package wherever this process found it."""
    source = Path(demo_module.__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")]))


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def processes_of_this_session() -> set[str]:
    """Command lines of live processes that have one of our test's addresses in them."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"prefillwatch" in words:
            found.add(b" ".join(words).decode())
    return found


def test_says_where_to_look_shows_figures_and_leaves_nothing_behind() -> None:
    said: list[str] = []
    settings = DemoSettings(listen=ANY, admin=ANY, simulator=ANY, victims=2, duration_seconds=5)
    asyncio.run(demo(settings, said.append))
    text = "\n".join(said)
    assert "2 readers have answers streaming" in text
    assert re.search(r"live page +http://127\.0\.0\.1:\d+/\n", text)
    assert "It ends in 5 s." in text
    rows = [line for line in said if re.match(r" +\d:\d\d +([\d.]+ m?s|–)", line)]
    assert len(rows) >= 2
    assert re.search(r" [\d.]+ m?s ", rows[-1]), "gaps are known after a few seconds"
    assert said[-1] == "stopping"
    ports = set(re.findall(r"127\.0\.0\.1:(\d+)", text))
    assert not [command for command in processes_of_this_session() if any(port in command for port in ports)]


def test_ends_on_a_signal_while_its_pages_are_up() -> None:
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if line.strip().startswith("live page"):
            url = line.split()[-1]
            with urllib.request.urlopen(url, timeout=10) as page:
                assert page.status == 200
            os.kill(os.getpid(), signal.SIGTERM)

    asyncio.run(demo(DemoSettings(listen=ANY, admin=ANY, simulator=ANY, victims=1), say))
    assert said[-1] == "stopping"


def test_a_taken_usual_port_is_replaced_and_the_user_is_told(taken_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    remarks: list[str] = []
    chosen = demo_module._address(None, taken_port, remarks)
    assert chosen.port not in (0, taken_port)
    assert remarks == [f"Port {taken_port} is taken by another program, so {chosen.port} is used instead."]


def test_an_address_that_was_asked_for_is_not_replaced(taken_port: int) -> None:
    asked = ListenAddress("127.0.0.1", taken_port)
    said: list[str] = []
    with pytest.raises(StartError, match=rf"prefillwatch sim ended with exit code 1:\ncannot listen on {asked}"):
        asyncio.run(demo(DemoSettings(simulator=asked, listen=ANY, admin=ANY), said.append))
    assert said == []


def test_a_child_that_will_not_end_is_killed() -> None:
    async def main() -> None:
        async with Child(python_module("prefillwatch", "sim", "--listen", "127.0.0.1:0"), stop_seconds=0.2) as child:
            while not any("serves" in line for line in child.lines):
                check("sim", child)
                await asyncio.sleep(0.02)
            os.kill(child.pid, signal.SIGSTOP)
        with pytest.raises(StartError, match="exit code -9"):
            check("sim", child)

    asyncio.run(main())
