"""A hop on loopback in a thread of its own: what the hops that keep or hold bytes have in common."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

LIMIT_SECONDS = 10.0
T = TypeVar("T")
H = TypeVar("H", bound="Hop")


class Sink(Protocol):
    """Where bytes go on."""

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...


class Hop:
    """Takes connections for 127.0.0.1:`upstream_port`: `with SomeHop(port) as hop: … hop.url`."""

    upstream_port: int
    port: int

    def __enter__(self: H) -> H:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.server = self._run(self._listen())
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *exc: object) -> None:
        self._run(self._close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(LIMIT_SECONDS)
        self.loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client, from its beginning to its end."""
        raise NotImplementedError

    async def connect_upstream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.upstream_port)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self.forward, "127.0.0.1", 0)

    async def _close(self) -> None:
        self.server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(LIMIT_SECONDS)


async def pump(reader: asyncio.StreamReader, sink: Sink, note: Callable[[bytes], None]) -> None:
    """Everything that comes, as it comes, until the end of either side."""
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            note(data)
            sink.write(data)
            await sink.drain()
    sink.close()
