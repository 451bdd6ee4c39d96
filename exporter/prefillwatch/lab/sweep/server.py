"""The server of one setting: started, waited for, watched and stopped. Only ever processes that were started here."""

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
from urllib.parse import urlsplit

import httpx

from prefillwatch.errors import ConfigError, PrefillwatchError
from prefillwatch.lab.sweep.said import last_error_line
from prefillwatch.own_process import ends_with_us, how_it_ended

KEPT_LINES: Final = 400
_LONGEST_KEPT_LINE: Final = 1000
_READ_SIZE: Final = 65536
_HEALTH_EVERY_SECONDS: Final = 0.25
_GONE_EVERY_SECONDS: Final = 0.1
_KILLED_WITHIN_SECONDS: Final = 5.0
_LAST_WORDS_SECONDS: Final = 1.0


class ServerError(PrefillwatchError):
    """The server of a setting did not come up, or did not stay up; the message is one line for its row."""


class Server:
    """`async with Server(argv, url) as server: await server.ready(limit); …`

    Runs in a process group of its own: Ctrl-C reaches it only through us. Leaving sends SIGTERM to the group, and
    SIGKILL to what is left of it after ``stop_seconds``. Its output is kept in part, and whole in ``log`` if given.
    """

    def __init__(
        self,
        argv: Sequence[str],
        url: str,
        *,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        stop_seconds: float = 30.0,
    ) -> None:
        self._argv = argv
        self.url = url
        self._env = env
        self._log = log
        self._stop_seconds = stop_seconds
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Server:
        await refuse_if_taken(self.url)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
                preexec_fn=ends_with_us(),
            )
        except OSError as error:
            raise ServerError(f"{self._argv[0]!r} cannot be run: {error.strerror or error}") from None
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

    async def ready(self, limit_seconds: float) -> None:
        """Returns once its health page answers 200; where there is none, its list of models. Raises ServerError when it
        ends before, or takes too long."""
        try:
            await asyncio.wait_for(self._until_healthy(), limit_seconds)
        except asyncio.TimeoutError:
            raise ServerError(f"not healthy within {limit_seconds:.0f} s{self._last_words()}") from None

    async def ended(self) -> ServerError:
        """Waits until the server ends by itself; says how."""
        assert self._process is not None
        assert self._reading is not None
        # Not its wait(): that goes on while a child of the server, which may outlive it, holds its output open.
        while (code := self._process.returncode) is None:  # noqa: ASYNC110 (asyncio has no event for it)
            await asyncio.sleep(_GONE_EVERY_SECONDS)
        with contextlib.suppress(asyncio.TimeoutError):  # its last words may still be in the pipe
            await asyncio.wait_for(asyncio.shield(self._reading), _LAST_WORDS_SECONDS)
        return ServerError(f"{how_it_ended(code)}{self._last_words()}")

    async def _until_healthy(self) -> None:
        dying = asyncio.ensure_future(self.ended())
        try:
            # No proxies of the environment; a certificate is the server's own affair here: it is our own child.
            async with httpx.AsyncClient(trust_env=False, verify=False, timeout=2.0) as client:  # noqa: S501
                while not dying.done():
                    with contextlib.suppress(httpx.HTTPError):
                        if await _is_healthy(client, self.url) and not dying.done():
                            return
                    await asyncio.wait([dying], timeout=_HEALTH_EVERY_SECONDS)
            raise dying.result()
        finally:
            dying.cancel()

    def _last_words(self) -> str:
        line = last_error_line(self._lines)
        return f": {line}" if line else "; it said nothing"

    async def _stop(self) -> None:
        if not _lives(self.pid):
            return  # not even to be signalled: its number may be another's by now
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
                self._lines.extend(_text(line) for line in lines)
        if rest:
            self._lines.append(_text(rest))


class _Log:
    """A file for the output, if it is wanted. A full disk costs the rest of it and not the server, which is read on."""

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


async def _is_healthy(client: httpx.AsyncClient, url: str) -> bool:
    health = await client.get(f"{url}/health")
    if health.status_code != httpx.codes.NOT_FOUND:
        return health.status_code == httpx.codes.OK
    return (await client.get(f"{url}/v1/models")).status_code in (httpx.codes.OK, httpx.codes.UNAUTHORIZED)


async def refuse_if_taken(url: str) -> None:
    """Raises ConfigError where something answers already: what is measured would be that."""
    parts = urlsplit(url)
    try:
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError:
        return
    writer.close()
    raise ConfigError(f"something listens on {parts.netloc} already; stop it, or leave the port of the command to us")


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
    """Whether a process of the group, and of the session that we began with it, still runs. Ended ones that nobody has
    collected yet do not count."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, process_group, session = stat.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if process_group == session == str(group) and state not in ("Z", "X"):
            return True
    return False
