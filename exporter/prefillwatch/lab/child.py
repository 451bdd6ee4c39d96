"""A process that an experiment needs: its output is kept in case it fails, and it never outlives the experiment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from prefillwatch.own_process import ends_with_us

KEPT_LINES: Final = 400
_LONGEST_KEPT_LINE: Final = 1000
_READ_SIZE: Final = 65536
_GONE_EVERY_SECONDS: Final = 0.1
_KILLED_WITHIN_SECONDS: Final = 5.0
_LAST_WORDS_SECONDS: Final = 1.0


class Child:
    """`async with Child(argv) as child:` raises OSError where it cannot be run.

    It has a process group of its own, so that Ctrl-C reaches it only through us: the parent decides in which order
    things end. Leaving sends SIGTERM to the group, and SIGKILL to what is left of it after ``stop_seconds``. Its output
    is kept in part in ``lines``, and whole in ``log`` if given.

    Not `supervision.children`: that takes SIGCHLD and the orphans of the whole process, which an experiment inside of
    another program may not, and lets output pass where this one keeps it.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        stop_seconds: float = 5.0,
    ) -> None:
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._argv = argv
        self._env = env
        self._log = log
        self._stop_seconds = stop_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Child:
        self._process = await asyncio.create_subprocess_exec(
            *self._argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._env,
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
        try:
            await self._stop()
        finally:
            # Bounded: a process that left the group could keep the pipe open for ever.
            for last in (self._process.wait(), asyncio.shield(self._reading)):
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(last, _LAST_WORDS_SECONDS)
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code (negative: the signal's number), None while it runs."""
        assert self._process is not None
        return self._process.returncode

    async def ended(self) -> int:
        """Waits until it ends by itself, and returns its exit code; ``lines`` then holds its last words."""
        assert self._reading is not None
        # Not the process's wait(): that goes on while a child of it, which may outlive it, holds its output open.
        while (code := self.code) is None:  # noqa: ASYNC110 (asyncio has no event for it)
            await asyncio.sleep(_GONE_EVERY_SECONDS)
        with contextlib.suppress(asyncio.TimeoutError):  # its last words may still be in the pipe
            await asyncio.wait_for(asyncio.shield(self._reading), _LAST_WORDS_SECONDS)
        return code

    async def _stop(self) -> None:
        if not _lives(self.pid):
            return  # not even with a signal: its number may belong to another process by now
        _signal_group(self.pid, signal.SIGTERM)
        try:
            if await _gone_within(self.pid, self._stop_seconds):
                return
        except asyncio.CancelledError:
            _signal_group(self.pid, signal.SIGKILL)
            raise
        _signal_group(self.pid, signal.SIGKILL)
        await _gone_within(self.pid, _KILLED_WITHIN_SECONDS)

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        rest = b""
        with _Log(self._log) as log:
            while chunk := await self._process.stdout.read(_READ_SIZE):
                log.write(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                rest = rest[-_LONGEST_KEPT_LINE:]
                self.lines.extend(_text(line) for line in lines)
        if rest:
            self.lines.append(_text(rest))


class _Log:
    """A file for the output, if it is wanted. A full disk costs the rest of the file; the process is read on."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def __enter__(self) -> _Log:
        with contextlib.suppress(OSError):
            self._file = self._path.open("wb", buffering=0) if self._path else None
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.write(data)


def _text(line: bytes) -> str:
    return line[:_LONGEST_KEPT_LINE].decode(errors="replace").rstrip()


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


async def _gone_within(group: int, seconds: float) -> bool:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while _lives(group):
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(_GONE_EVERY_SECONDS)
    return True


def _lives(group: int) -> bool:
    """Whether a process of the group, and of the session that we began with it, still runs. One that has ended without
    being collected does not count."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, process_group, session = stat.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if process_group == session == str(group) and state not in ("Z", "X"):
            return True
    return False
