"""Wait for what a thread, a process or another task brings about. The only place where tests poll.

A test that passes waits no longer than it must, so patience is long: it is for a machine that is busy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 30.0
EVERY_S = 0.005


def eventually(
    condition: Callable[[], T | None],
    what: str | Callable[[], str] = "it did not happen",
    patience_s: float = PATIENCE_S,
    every_s: float = EVERY_S,
) -> T:
    """The first value of ``condition()`` that is true. Fails with ``what``, which may be made when it is needed."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(_failure(what, patience_s))
        time.sleep(every_s)
    return found


async def soon(
    condition: Callable[[], T | None],
    what: str | Callable[[], str] = "it did not happen",
    patience_s: float = PATIENCE_S,
    every_s: float = EVERY_S,
) -> T:
    """The same, while the event loop goes on."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(_failure(what, patience_s))
        await asyncio.sleep(every_s)
    return found


def _failure(what: str | Callable[[], str], patience_s: float) -> str:
    return f"{what if isinstance(what, str) else what()} (within {patience_s:g} s)"
