"""Signals that end an experiment early."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from prefillwatch.commands._stopping import stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_of_them_is_a_wish_to_stop(number: signal.Signals) -> None:
    told: list[str] = []

    async def main() -> None:
        stop = stop_on_signals(lambda: told.append("stopping"))
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop.wait(), 10)

    asyncio.run(main())
    assert told == ["stopping"]


def test_a_second_ctrl_c_is_not_held_back() -> None:
    async def main() -> None:
        stop = stop_on_signals()
        os.kill(os.getpid(), signal.SIGINT)
        await stop.wait()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(10)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())


def test_ctrl_c_counts_in_a_job_of_a_script_too() -> None:
    """Shells have such jobs ignore it; who sends it all the same means us."""

    async def main() -> None:
        stop = stop_on_signals()
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(stop.wait(), 10)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        asyncio.run(main())
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_end_of_the_terminal_stays_ignored_under_nohup() -> None:
    async def main() -> bool:
        stop = stop_on_signals()
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0)
        return stop.is_set()

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert not asyncio.run(main())
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
