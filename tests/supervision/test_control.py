"""The control channel from the supervisor's side."""

from __future__ import annotations

import asyncio
import socket

from prefillwatch.settings.control import READY_LINE, Control, ProcessNow, Restarts, decode_control
from prefillwatch.supervision.control import PATIENCE, ControlChannel


def state(number: int) -> Control:
    return Control(
        processes=(ProcessNow(role="supervisor", pid=number),), draining=False, restarts=Restarts(observer=number)
    )


async def receive_line(end: socket.socket) -> bytes:
    """The next line; what follows it stays in the socket."""
    line = b""
    while not line.endswith(b"\n"):
        line += await asyncio.get_running_loop().sock_recv(end, 1)
    return line


def test_the_observer_is_told_and_says_when_it_is_ready() -> None:
    async def scenario() -> None:
        ready = asyncio.Event()
        channel = ControlChannel(ready.set)
        channel.theirs.setblocking(False)
        channel.tell(state(7))
        assert decode_control(await receive_line(channel.theirs)) == state(7)
        channel.theirs.send(READY_LINE)
        await asyncio.wait_for(ready.wait(), 10)
        channel.close()

    asyncio.run(scenario())


def test_an_observer_that_does_not_say_so_is_taken_for_ready_once() -> None:
    async def scenario() -> None:
        calls: list[int] = []
        channel = ControlChannel(lambda: calls.append(1))
        channel.assume_ready()
        channel.assume_ready()
        assert calls == [1]
        channel.close()

    asyncio.run(scenario())


def test_a_stuck_observer_blocks_nobody_and_hears_the_newest_in_the_end() -> None:
    async def scenario() -> None:
        channel = ControlChannel(lambda: None)
        channel.theirs.setblocking(False)
        number = 0
        while not channel.is_behind:
            number += 1
            channel.tell(state(number))
        channel.tell(state(number + 1))
        assert [channel.tick() for _ in range(PATIENCE)] == [False] * (PATIENCE - 1) + [True]
        heard = 0
        while heard <= number:
            heard = decode_control(await asyncio.wait_for(receive_line(channel.theirs), 10)).restarts.observer
        assert heard == number + 1
        assert not channel.is_behind
        assert not channel.tick()
        channel.close()

    asyncio.run(scenario())


def test_an_observer_that_has_ended_is_no_error() -> None:
    async def scenario() -> None:
        channel = ControlChannel(lambda: None)
        channel.handed_over()
        channel.tell(state(1))
        await asyncio.sleep(0)
        channel.tell(state(2))
        assert not channel.is_behind
        channel.close()

    asyncio.run(scenario())
