"""The socket on which the plugin inside vLLM tells the engine's steps: who connects, what it says, how it goes away."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from prefillwatch.core.inputs import EngineStep
from prefillwatch.engine.plugin.sender import Sender
from prefillwatch.engine.step_report import Packet, StepReport, encode
from prefillwatch.observer.intake import MAX_LINKS, EngineLink

STEP = StepReport(0, 5, 7, duration_ns=3, prefill_tokens=9, gaps=[(0.5, 2)])


class Told:
    """A link and what came over it."""

    def __init__(self, path: Path) -> None:
        self.steps: list[tuple[int, StepReport]] = []
        self.link = EngineLink(str(path), lambda given: self.steps.append((given.link, given.report)))

    async def until(self, condition: Callable[[], bool]) -> None:
        async def look() -> None:
            while not condition():
                await asyncio.sleep(0.001)

        await asyncio.wait_for(look(), 10)


@asynccontextmanager
async def listening(path: Path) -> AsyncIterator[Told]:
    told = Told(path)
    told.link.open()
    try:
        yield told
    finally:
        told.link.close()


def connect(path: Path) -> socket.socket:
    plugin = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    plugin.connect(str(path))
    return plugin


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "engine.sock"


def test_the_plugin_and_we_understand_each_other(path: Path) -> None:
    async def scene() -> None:
        async with listening(path) as told:
            sender = Sender(str(path))
            sender.send([STEP] * 40)
            await told.until(lambda: len(told.steps) == 40)
            assert set(map(repr, told.steps)) == {repr((1, STEP))}
            sender.close()
            await told.until(lambda: told.link.counts().connected == 0)

    asyncio.run(scene())


def test_several_api_servers(path: Path) -> None:
    async def scene() -> None:
        async with listening(path) as told:
            plugins = [connect(path) for _ in range(2)]
            for number, plugin in enumerate(plugins):
                plugin.send(encode(Packet([STEP], dropped=number + 1)))
            await told.until(lambda: len(told.steps) == 2)
            assert {number for number, _ in told.steps} == {1, 2}
            assert (told.link.counts().connected, told.link.counts().dropped) == (2, 3)
            plugins[0].close()
            await told.until(lambda: told.link.counts().connected == 1)
            assert told.link.counts().dropped == 3  # a total: it does not fall when one goes
            plugins[1].close()

    asyncio.run(scene())


@pytest.mark.parametrize("junk", [b"\x00", b"{", b"[]", b'{"steps": 1}', b'{"steps": [{}]}', b"\xff\xfe" * 100])
def test_junk_is_counted_and_the_link_stays(path: Path, junk: bytes) -> None:
    async def scene() -> None:
        async with listening(path) as told:
            with connect(path) as plugin:
                plugin.send(junk)
                plugin.send(encode(Packet([STEP])))
                await told.until(lambda: bool(told.steps))
                assert told.link.unreadable == 1

    asyncio.run(scene())


def test_a_later_version_may_say_more(path: Path) -> None:
    async def scene() -> None:
        async with listening(path) as told:
            with connect(path) as plugin:
                plugin.send(b'{"v": 2, "steps": [{"engine": 0, "end_ns": 1, "taken_ns": 2, "news": [1]}]}')
                await told.until(lambda: bool(told.steps))
                assert told.steps[0][1].prefill_tokens == -1

    asyncio.run(scene())


def test_a_socket_left_behind_is_replaced_and_ours_is_taken_away(path: Path) -> None:
    async def scene() -> None:
        left = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        left.bind(str(path))
        left.close()
        async with listening(path) as told:
            with connect(path):
                await told.until(lambda: told.link.counts().connected == 1)
        assert not path.exists()

    asyncio.run(scene())


@pytest.mark.parametrize("where", ["file", "missing/engine.sock"])
def test_where_it_cannot_listen_it_says_so_and_goes_on(
    where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("precious")

    async def scene() -> None:
        async with listening(tmp_path / where):
            pass

    with caplog.at_level(logging.ERROR):
        asyncio.run(scene())
    assert f"cannot listen on {tmp_path / where}" in caplog.text
    assert (tmp_path / "file").read_text() == "precious"


def test_too_many_are_turned_away(path: Path) -> None:
    async def scene() -> None:
        async with listening(path) as told:
            plugins = []
            for _ in range(MAX_LINKS):
                plugins.append(connect(path))
                await told.until(lambda: told.link.counts().connected == len(plugins))
            with connect(path) as one_more:
                one_more.setblocking(False)
                assert await asyncio.get_running_loop().sock_recv(one_more, 1) == b""
            for plugin in plugins:
                plugin.close()

    asyncio.run(scene())


def test_figures_that_cannot_be_are_counted_and_nothing_else_happens(path: Path) -> None:
    async def scene() -> None:
        async with listening(path) as told:
            plugin = connect(path)
            for field in ("prefill_tokens", "engine", "end_ns", "duration_ns", "running"):
                plugin.send(b'{"steps":[{"engine":0,"end_ns":1,"taken_ns":1,"%b":%d}]}' % (field.encode(), 1 << 63))
            plugin.send(b'{"steps":[{"engine":0,"end_ns":1,"taken_ns":1,"gaps":[[1e300,1]]}]}')
            plugin.send(encode(Packet([STEP])))
            await told.until(lambda: bool(told.steps))
            assert (len(told.steps), told.link.unreadable) == (1, 6)
            plugin.close()

    asyncio.run(scene())


def test_a_step_that_we_cannot_take_costs_that_step(path: Path) -> None:
    async def scene() -> None:
        taken: list[int] = []

        def take(given: EngineStep) -> None:
            report = given.report
            if report.engine == 1:
                raise OverflowError
            taken.append(report.engine)

        link = EngineLink(str(path), take)
        link.open()
        plugin = connect(path)
        plugin.send(encode(Packet([StepReport(number, 1, 1) for number in range(3)])))
        while len(taken) < 2:
            await asyncio.sleep(0.001)
        assert (taken, link.unreadable) == ([0, 2], 1)
        plugin.close()
        link.close()

    asyncio.run(scene())


def test_the_socket_of_a_sidecar_that_runs_is_not_taken_away(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with listening(path) as first:
            second = Told(path)
            second.link.open()
            assert "cannot listen" in caplog.text
            assert "another process listens there" in caplog.text
            second.link.close()
            plugin = connect(path)
            plugin.send(encode(Packet([STEP])))
            await first.until(lambda: bool(first.steps))
            plugin.close()
        assert not path.exists()

    asyncio.run(scene())


def test_at_its_end_it_leaves_the_socket_of_another_alone(path: Path) -> None:
    async def scene() -> None:
        async with listening(path):
            path.unlink()
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
                other.bind(str(path))
        assert path.exists()

    asyncio.run(scene())
