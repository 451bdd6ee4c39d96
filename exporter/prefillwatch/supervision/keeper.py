"""Keeps one process of ours running: starts it, and starts it again when it ends."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Final

from prefillwatch.own_process import how_it_ended
from prefillwatch.supervision.backoff import Backoff
from prefillwatch.supervision.children import Child

log = logging.getLogger(__name__)

#: A process that lived this long did not fail at its start.
_STARTED_WELL_S: Final = 10.0
#: After this many failures in a row from the very beginning, nothing will mend by itself.
_FAILED_STARTS: Final = 5
#: The same for a process that has worked before: the cause may be a file that is being rewritten. With the growing
#: delays between them, these failures take more than half a minute.
_FAILURES_LATER: Final = 12
#: After this many, the log says error and no longer warning.
_LOUD_AFTER: Final = 3
_ADVICE: dict[int, str] = {
    signal.SIGSYS: "a system call that it needs is forbidden here: allow all of @system-service, or have the filter "
    "answer with an error (SystemCallErrorNumber=EPERM)",
    signal.SIGILL: "a library uses instructions that this processor does not have",
    signal.SIGKILL: "if nobody did that by hand, look for a memory limit that is too low",
}


class Keeper:
    """One kept process. ``restarts`` counts its starts but for the first; ``child`` is None while it waits to start;
    ``failures`` counts the lives in a row that ended badly, and soon or by `kill`."""

    def __init__(self, name: str, start: Callable[[], Child], changed: Callable[[], None]) -> None:
        self.name = name
        self.child: Child | None = None
        self.restarts = 0
        self.failures = 0
        #: How it ended last, in words.
        self.ending = "has not started yet"
        #: Done when the process fails again and again; waiting longer would not help.
        self.hopeless: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._start = start
        self._changed = changed
        self._backoff = Backoff()
        self._has_worked = False
        self._killed_for = ""
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Start the process and keep it until `stop`. Ends when the process has ended for good."""
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            started_at = loop.time()
            code = await self._live_once()
            if self._stopping.is_set():
                return
            await self._wait_to_restart(code, loop.time() - started_at)

    def stop(self, number: int) -> None:
        """Signal the process and do not start it again."""
        self._stopping.set()
        self.signal(number)

    def signal(self, number: int) -> None:
        if self.child is not None:
            self.child.signal(number)

    def kill(self, why: str) -> None:
        """End a process that is of no use any more; it is started again, and that counts as a failure."""
        if self.child is not None and not self._stopping.is_set():
            self._killed_for = why
            self.signal(signal.SIGKILL)

    async def _live_once(self) -> int:
        """One life of the process; returns its exit code, 1 where it could not be started."""
        self._killed_for = ""
        try:
            child = self._start()
        except OSError as error:
            self.ending = f"could not be started ({error.strerror})"
            return 1
        self.child = child
        self._changed()
        code = await asyncio.shield(child.exited)
        self.child = None
        self.ending = f"(pid {child.pid}) {how_it_ended(code)}"
        if self._killed_for:
            self.ending += f" by us: {self._killed_for}"
        return code

    async def _wait_to_restart(self, code: int, lived_s: float) -> None:
        self._note_end(code, lived_s)
        delay_s = self._backoff.delay_after(lived_s)
        level = logging.ERROR if self.failures >= _LOUD_AFTER else logging.WARNING
        log.log(level, "%s %s; it is started again in %.1f s%s", self.name, self.ending, delay_s, self._remark(code))
        self._changed()
        try:
            await asyncio.wait_for(self._stopping.wait(), delay_s)
        except asyncio.TimeoutError:
            self.restarts += 1

    def _note_end(self, code: int, lived_s: float) -> None:
        """A process that ended by itself without an error was asked to, from outside: that is no failure."""
        worked = lived_s >= _STARTED_WELL_S and not self._killed_for
        self._has_worked = self._has_worked or worked
        self.failures = 0 if worked or code == 0 else self.failures + 1
        most = _FAILURES_LATER if self._has_worked else _FAILED_STARTS
        if self.failures >= most and not self.hopeless.done():
            self.hopeless.set_result(None)

    def _remark(self, code: int) -> str:
        again = f" (failed {self.failures} times in a row)" if self.failures >= _LOUD_AFTER else ""
        known = signal.SIGSYS, signal.SIGILL
        advice = _ADVICE.get(-code, "") if code < 0 and (again or -code in known) and not self._killed_for else ""
        return again + (f"; {advice}" if advice else "")
