"""Work that can be stopped: it is cancelled and has cleaned up before this returns."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

#: Exit code of what was ended early, as of a shell's command after Ctrl-C.
INTERRUPTED: Final = 130
T = TypeVar("T")


class Stopped(Exception):  # noqa: N818 (no error: it was wanted)
    """The work was stopped before it was done."""


async def unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T:
    """The result of the work. Raises Stopped where `stop` is set before, once the work has cleaned up."""
    doing = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise Stopped
        return doing.result()
    finally:
        stopping.cancel()
        await cancelled(doing)


async def cancelled(task: asyncio.Future[Any]) -> None:
    """Cancels it and waits for its end, whatever that is."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await task
