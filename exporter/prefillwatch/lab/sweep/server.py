"""The server of one setting: started, waited for, watched and stopped. It only ends processes that it started."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit

import httpx

from prefillwatch.errors import ConfigError, PrefillwatchError
from prefillwatch.lab.child import Child
from prefillwatch.lab.sweep.said import last_error_line
from prefillwatch.own_process import how_it_ended
from prefillwatch.report import duration

_HEALTH_EVERY_SECONDS: Final = 0.25


class ServerError(PrefillwatchError):
    """The server of a setting did not come up, or did not stay up; the message is one line for its row."""


class Server:
    """`async with Server(argv, url) as server: await server.ready(limit); …`: a `Child` with an address."""

    def __init__(
        self,
        argv: Sequence[str],
        url: str,
        *,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        stop_seconds: float = 30.0,
    ) -> None:
        self.url = url
        self._program = argv[0]
        self._child = Child(argv, env=env, log=log, stop_seconds=stop_seconds)

    async def __aenter__(self) -> Server:
        await refuse_if_taken(self.url)
        try:
            await self._child.__aenter__()
        except OSError as error:
            raise ServerError(f"{self._program!r} cannot be run: {error.strerror or error}") from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._child.__aexit__(kind, error, trace)

    @property
    def pid(self) -> int:
        return self._child.pid

    async def ready(self, limit_seconds: float) -> None:
        """Returns once its health page answers 200; where there is none, its list of models. Raises ServerError when it
        ends before, or takes too long."""
        try:
            await asyncio.wait_for(self._until_healthy(), limit_seconds)
        except asyncio.TimeoutError:
            raise ServerError(f"not healthy within {duration(limit_seconds)}{self._last_words()}") from None

    async def ended(self) -> ServerError:
        """Waits until the server ends by itself; says how."""
        return ServerError(f"{how_it_ended(await self._child.ended())}{self._last_words()}")

    async def _until_healthy(self) -> None:
        dying = asyncio.ensure_future(self.ended())
        try:
            # No proxies from the environment. The certificate is not verified: the server is our own child.
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
        line = last_error_line(self._child.lines)
        return f": {line}" if line else "; it said nothing"


async def _is_healthy(client: httpx.AsyncClient, url: str) -> bool:
    health = await client.get(f"{url}/health")
    if health.status_code != httpx.codes.NOT_FOUND:
        return health.status_code == httpx.codes.OK
    return (await client.get(f"{url}/v1/models")).status_code in (httpx.codes.OK, httpx.codes.UNAUTHORIZED)


async def refuse_if_taken(url: str) -> None:
    """Raises ConfigError where something answers there already: it would be measured instead of the server."""
    parts = urlsplit(url)
    try:
        _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError:
        return
    writer.close()
    raise ConfigError(f"something listens on {parts.netloc} already; stop it, or leave the port of the command to us")
