"""How an experiment ends early: on the first signal it cleans up and reports what it has."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stop_on_signals(told: Callable[[], None] = lambda: None) -> asyncio.Event:
    """An event of the running loop, set by Ctrl-C, SIGTERM, or the end of the terminal (ignored under nohup). A second
    Ctrl-C ends the program at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)
        told()

    for number in _SIGNALS:
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, end)
    return stop
