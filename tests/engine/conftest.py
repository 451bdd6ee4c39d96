"""An upstream server made of raw answers, so that it can be as broken as it needs to be."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

Behaviour = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


class Upstream:
    """Answers each path as told in ``routes``, raw bytes or a coroutine that writes; 404 for others."""

    def __init__(self) -> None:
        self.routes: dict[str, Behaviour] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.connections = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def seen(self, path: str) -> list[dict[str, str]]:
        return [headers for asked, headers in self.requests if asked == path]

    async def start(self, unix_path: Path | None = None, tls: ssl.SSLContext | None = None) -> None:
        if unix_path is not None:
            self._server = await asyncio.start_unix_server(self._connected, unix_path)
        else:
            self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port, ssl=tls)
            self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            await self._server.wait_closed()
            await asyncio.sleep(0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await self._exchange((await reader.readuntil(b"\r\n\r\n")).decode(), writer)
        self._writers.discard(writer)
        writer.transport.abort()

    async def _exchange(self, head: str, writer: asyncio.StreamWriter) -> None:
        first, *lines = head.strip().split("\r\n")
        path = first.split(" ")[1]
        self.requests.append((path, {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}))
        behaviour = self.routes.get(path, answer(b"no such path", "404 Not Found"))
        if isinstance(behaviour, bytes):
            writer.write(behaviour)
        else:
            await behaviour(writer)
        await writer.drain()


Running = Callable[..., "contextlib.AbstractAsyncContextManager[Upstream]"]


@pytest.fixture
def running() -> Running:
    """``async with running({path: behaviour}) as upstream``"""

    @contextlib.asynccontextmanager
    async def run(
        routes: dict[str, Behaviour] | None = None, *, unix_path: Path | None = None, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[Upstream]:
        upstream = Upstream()
        upstream.routes = dict(routes or {})
        await upstream.start(unix_path, tls)
        try:
            yield upstream
        finally:
            await upstream.stop()

    return run


@pytest.fixture
def answering() -> Callable[..., bytes]:
    """A whole HTTP answer from a body, a status and more header lines."""
    return answer


@pytest.fixture(scope="session")
def pages() -> Callable[[str], bytes]:
    """Pages of metrics as servers of several kinds and times write them."""
    folder = Path(__file__).parents[1] / "data" / "metrics"
    return lambda name: (folder / f"{name}.txt").read_bytes()
