"""What ends an experiment early: a wish to stop, or the end of its time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any, Final

from prefillwatch.lab.stopping import Stopped, unless_stopped

_STOPPED: Final = "it was interrupted"


class Halted(Exception):  # noqa: N818 (no error: the user wanted it, or the bound that the user set)
    """The experiment has to end now."""

    def __init__(self, why: str, wanted: bool) -> None:
        super().__init__(why)
        self.why = why
        self.wanted = wanted


class Halt:
    """Ends work when `stop` is set or `max_seconds` have passed since `watching` began."""

    def __init__(self, max_seconds: float, stop: asyncio.Event | None = None) -> None:
        self._max_seconds = max_seconds
        self._stop = stop
        self._why = ""
        self._event = asyncio.Event()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._max_seconds, self._halt, f"the time limit of {self._max_seconds:g} s was reached")
        task = asyncio.ensure_future(self._wait_for_stop())
        try:
            yield
        finally:
            timer.cancel()
            task.cancel()

    async def first_of(self, work: Coroutine[Any, Any, None]) -> None:
        """Does the work, or cancels it and raises Halted once it has cleaned up."""
        try:
            await unless_stopped(work, self._event)
        except Stopped:
            raise Halted(self._why, wanted=self._why == _STOPPED) from None

    async def _wait_for_stop(self) -> None:
        if self._stop is not None:
            await self._stop.wait()
            self._halt(_STOPPED)

    def _halt(self, why: str) -> None:
        self._why = self._why or why
        self._event.set()
