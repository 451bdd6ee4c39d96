"""How late this program itself is: when its event loop is late, a token read late looks like a gap of the server."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Final

EVERY_SECONDS: Final = 0.01


class LagWatch:
    """`async with LagWatch() as lag: …; lag.seconds` are the times by which this event loop came too late, one for each
    hundredth of a second."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> LagWatch:
        self._task = asyncio.ensure_future(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            due = time.monotonic() + EVERY_SECONDS
            await asyncio.sleep(EVERY_SECONDS)
            self.seconds.append(max(0.0, time.monotonic() - due))
