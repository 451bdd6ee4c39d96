"""One server's life: up, measured, gone; and what is said of one that fails."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import pytest
from tests.kit.eventually import soon
from tests.kit.processes import is_alive

from prefillwatch.errors import ConfigError
from prefillwatch.lab.client import ask
from prefillwatch.lab.sweep.server import Server, ServerError
from prefillwatch.supervision import free_port

FAKE = Path(__file__).parent / "fake_server.py"
LONG = 30.0


def server(deed: str, *, stop_seconds: float = LONG, log: Path | None = None) -> Server:
    port = free_port()
    argv = (sys.executable, str(FAKE), str(port), deed)
    return Server(argv, f"http://127.0.0.1:{port}", stop_seconds=stop_seconds, log=log)


async def live(deed: str, *, ready_seconds: float = LONG, stop_seconds: float = LONG) -> int:
    async with server(deed, stop_seconds=stop_seconds) as one:
        await one.ready(ready_seconds)
        assert is_alive(one.pid)
        return one.pid


@pytest.mark.parametrize("deed", ["serves", "plain"], ids=["with a health page", "with a list of models alone"])
def test_it_runs_while_it_is_needed_and_not_longer(deed: str) -> None:
    assert not is_alive(asyncio.run(live(deed)))


def test_one_that_ignores_sigterm_is_killed() -> None:
    assert not is_alive(asyncio.run(live("stubborn", stop_seconds=0.2)))


def test_its_descendants_go_with_it(tmp_path: Path) -> None:
    log = tmp_path / "server.log"

    async def play() -> int:
        async with server("parent", stop_seconds=0.2, log=log) as one:
            await one.ready(LONG)
            line = next(line for line in log.read_text().splitlines() if line.startswith("child"))
            child = int(line.split()[1])
            assert is_alive(child)
            return child

    assert not is_alive(asyncio.run(play()))


@pytest.mark.parametrize(
    ("deed", "limit", "why"),
    [
        ("fails", LONG, "ended with code 1: ValueError: no memory for that"),
        ("hangs", 1.0, "not healthy within 1 s: flags:"),
    ],
)
def test_one_that_does_not_come_up_says_why(deed: str, limit: float, why: str) -> None:
    with pytest.raises(ServerError) as error:
        asyncio.run(live(deed, ready_seconds=limit, stop_seconds=1.0))
    assert str(error.value) == why


def test_a_log_that_cannot_be_written_costs_the_log_alone(tmp_path: Path) -> None:
    (tmp_path / "full.log").symlink_to("/dev/full")

    async def play(log: Path) -> str:
        async with server("fails", log=log) as one:
            return str(await asyncio.wait_for(one.ended(), LONG))

    for log in (tmp_path / "full.log", tmp_path / "none" / "server.log"):
        assert asyncio.run(play(log)) == "ended with code 1: ValueError: no memory for that"


def test_a_program_that_is_not_there_is_named() -> None:
    async def play() -> None:
        async with Server(("/no/such/program",), f"http://127.0.0.1:{free_port()}"):
            pass

    with pytest.raises(ServerError, match="'/no/such/program' cannot be run: No such file or directory"):
        asyncio.run(play())


@pytest.mark.parametrize("deed", ["serves", "parent"], ids=["alone", "with a child that holds its output open"])
def test_the_end_of_one_that_was_up_is_noticed(deed: str) -> None:
    async def play() -> str:
        async with server(deed, stop_seconds=0.2) as one:
            await one.ready(LONG)
            await ask(one.url, {}, path="/anything")
            return str(await asyncio.wait_for(one.ended(), LONG))

    assert asyncio.run(play()) == "ended with code 7: RuntimeError: engine is dead"


def test_what_listens_there_already_is_not_taken_for_ours() -> None:
    async def play(port: int) -> None:
        async with Server((sys.executable, str(FAKE), str(port), "serves"), f"http://127.0.0.1:{port}"):
            pass

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"something listens on 127.0.0.1:{port} already; stop it"):
            asyncio.run(play(port))


def test_impatience_while_it_is_stopped_kills_it(tmp_path: Path) -> None:
    log = tmp_path / "server.log"

    async def run(pids: list[int]) -> None:
        async with server("stubborn", log=log) as one:
            pids.append(one.pid)
            await one.ready(LONG)

    async def play() -> int:
        pids: list[int] = []
        task = asyncio.ensure_future(run(pids))
        await soon(lambda: log.exists() and "staying" in log.read_text())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await soon(lambda: not is_alive(pids[0]))
        return pids[0]

    assert not is_alive(asyncio.run(asyncio.wait_for(play(), LONG / 2)))
