"""Our own lateness: noticed, and said where it could be taken for the server's."""

from __future__ import annotations

import asyncio
import time

import msgspec
from tests.lab.sweep.rows import row, spread

from prefillwatch.lab.sweep.lag import LagWatch
from prefillwatch.lab.sweep.sentences import on_trouble


def test_a_loop_that_is_held_up_is_late() -> None:
    async def play() -> list[float]:
        async with LagWatch() as lag:
            while len(lag.seconds) < 3:
                await asyncio.sleep(0)
            time.sleep(0.2)  # what a busy machine does to us
            held_up_at = len(lag.seconds)
            while len(lag.seconds) == held_up_at:
                await asyncio.sleep(0)
        return lag.seconds

    assert max(asyncio.run(play())) >= 0.15


def test_it_is_said_when_it_is_a_large_part_of_the_gaps() -> None:
    measured = row("a", 0.1, 1.0)
    (said,) = on_trouble([msgspec.structs.replace(measured, client_lag=spread(0.05))])
    assert said.startswith("A: this program itself was late by 50 ms in the p99")
    assert on_trouble([msgspec.structs.replace(measured, client_lag=spread(0.001))]) == []
    assert on_trouble([measured]) == []
