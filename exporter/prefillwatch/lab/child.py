"""A child process of an experiment: its output is kept in case it fails, and it never outlives the experiment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from typing import TYPE_CHECKING

from prefillwatch.errors import ERROR_PREFIX, StartError
from prefillwatch.own_process import ends_with_us, python_module

if TYPE_CHECKING:
    from types import TracebackType

KEPT_LINES = 20


class Child:
    """`async with Child("sim", "--listen", …) as child:` runs `prefillwatch sim …` in a process group of its own.

    The group keeps Ctrl-C away from it: the parent decides in which order things end. Leaving sends SIGTERM, and
    SIGKILL to the group after `grace_seconds`.
    """

    def __init__(self, *arguments: str, grace_seconds: float = 5.0) -> None:
        self.name = f"prefillwatch {arguments[0]}"
        self._arguments = arguments
        self._grace_seconds = grace_seconds
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Child:
        self._process = await asyncio.create_subprocess_exec(
            *python_module("prefillwatch", *self._arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=ends_with_us(),
        )
        self._reading = asyncio.ensure_future(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._reading is not None
        if self._process.returncode is None:
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), self._grace_seconds)
        except asyncio.TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        await self._reading

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def output(self) -> list[str]:
        """The last lines it wrote."""
        return list(self._lines)

    def check(self) -> None:
        """Raises StartError, with the last lines it wrote, if the process has ended."""
        assert self._process is not None
        if self._process.returncode is not None:
            # Its errors become part of ours: once is enough to say whose they are.
            said = "\n".join(line.removeprefix(ERROR_PREFIX) for line in self._lines) or "it said nothing"
            raise StartError(f"{self.name} ended with exit code {self._process.returncode}:\n{said}")

    async def ended(self) -> None:
        """Returns when the process has ended by itself."""
        assert self._process is not None
        await self._process.wait()

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._lines.append(line.decode(errors="replace").rstrip())
