"""Keeps one process of ours running: starts it, and starts it again when it ends."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable

from prefillwatch.supervision.backoff import Backoff
from prefillwatch.supervision.children import Child

log = logging.getLogger(__name__)

_STARTED_WELL_S = 10.0
_FAILED_STARTS = 5
#: What else to say of a signal that nobody sends by hand.
_WHY = {
    signal.SIGSYS: "a filter of system calls forbids one that it makes; have the filter answer with an error instead "
    "(systemd: SystemCallErrorNumber=EPERM)",
}


class Keeper:
    """One kept process. ``restarts`` counts its starts but for the first; ``child`` is None while it waits to start."""

    def __init__(self, name: str, start: Callable[[], Child], changed: Callable[[], None]) -> None:
        self.name = name
        self.child: Child | None = None
        self.restarts = 0
        #: Done when the process fails again and again right from the beginning; waiting longer would help nobody.
        self.hopeless: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._start = start
        self._changed = changed
        self._backoff = Backoff()
        self._failed_starts: int | None = 0
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Start the process and keep it until `stop`. Ends when the process has ended for good."""
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            started_at = loop.time()
            ending = await self._live_once()
            if self._stopping.is_set():
                return
            lived_s = loop.time() - started_at
            await self._wait_to_restart(ending, lived_s)

    def stop(self, number: int) -> None:
        """Signal the process and do not start it again."""
        self._stopping.set()
        self.signal(number)

    def signal(self, number: int) -> None:
        if self.child is not None:
            self.child.signal(number)

    async def _live_once(self) -> str:
        """From start to end; gives the end in words."""
        try:
            child = self._start()
        except OSError as error:
            return f"could not be started ({error.strerror})"
        self.child = child
        self._changed()
        code = await asyncio.shield(child.exited)
        self.child = None
        self._note_end(code, asyncio.get_running_loop().time() - child.started_at)
        return f"(pid {child.pid}) {how_it_ended(code)}"

    async def _wait_to_restart(self, ending: str, lived_s: float) -> None:
        delay_s = self._backoff.delay_after(lived_s)
        log.warning("%s %s; it is started again in %.1f s", self.name, ending, delay_s)
        self._changed()
        try:
            await asyncio.wait_for(self._stopping.wait(), delay_s)
        except asyncio.TimeoutError:
            self.restarts += 1

    def _note_end(self, code: int, lived_s: float) -> None:
        """Count the starts that failed by themselves since the very first; one that went well settles the matter."""
        if self._failed_starts is None:
            return
        if lived_s >= _STARTED_WELL_S:
            self._failed_starts = None
        elif code > 0:
            self._failed_starts += 1
            if self._failed_starts == _FAILED_STARTS:
                self.hopeless.set_result(None)


def how_it_ended(code: int) -> str:
    """An exit code in words: ``ended with code 1``, ``was killed by SIGKILL``."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        number = signal.Signals(-code)
    except ValueError:
        return f"was killed by signal {-code}"
    why = _WHY.get(number)
    return f"was killed by {number.name}" + (f" ({why})" if why else "")
