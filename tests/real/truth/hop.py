"""A hop between the sidecar and vLLM that buffers: it keeps the bytes of answers and lets them go in bursts."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class BufferingHop:
    """Forwards connections to 127.0.0.1:`upstream_port`, in a thread of its own.

    While `hold_seconds` is set, answers to POST leave at common times that far apart; while `hold_bytes` is set, each
    connection keeps so many bytes before it lets them go, as a proxy with a buffer of that size does. What is left when
    an answer ends is always sent. Other answers (health, metrics) pass as they come.
    """

    upstream_port: int
    hold_seconds: float = 0.0
    hold_bytes: int = 0
    port: int = 0
    _downs: set[_Down] = field(default_factory=set)

    def __enter__(self) -> BufferingHop:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.server = asyncio.run_coroutine_threadsafe(self._listen(), self.loop).result(10)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _listen(self) -> asyncio.Server:
        self.releaser = asyncio.create_task(self._release_together())
        return await asyncio.start_server(self._forward, "127.0.0.1", 0)

    async def _close(self) -> None:
        self.server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _release_together(self) -> None:
        released = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            if time.monotonic() - released >= self.hold_seconds:
                released = time.monotonic()
                if not self.hold_bytes:
                    for down in self._downs:
                        down.release()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        down = _Down(self, writer)
        self._downs.add(down)
        up = asyncio.create_task(_pump(reader, upstream_writer, down.asked))
        try:
            await asyncio.gather(up, _pump(upstream_reader, down, lambda data: None))
        finally:
            self._downs.discard(down)
            writer.close()
            upstream_writer.close()


class _Down:
    """The way of one connection's answers to the client."""

    def __init__(self, hop: BufferingHop, writer: asyncio.StreamWriter) -> None:
        self.hop, self.writer = hop, writer
        self.kept = b""
        self.holds = False

    def asked(self, request: bytes) -> None:
        if request.startswith((b"GET ", b"POST ")):
            self.holds = request.startswith(b"POST ")

    def write(self, data: bytes) -> None:
        self.kept += data
        ended = self.kept.endswith(b"0\r\n\r\n")
        bytes_due = bool(self.hop.hold_bytes) and len(self.kept) >= self.hop.hold_bytes
        holding = self.holds and (self.hop.hold_bytes or self.hop.hold_seconds)
        if ended or bytes_due or not holding:
            self.release()

    def release(self) -> None:
        kept, self.kept = self.kept, b""
        if kept and not self.writer.is_closing():
            self.writer.write(kept)

    async def drain(self) -> None:
        await self.writer.drain()

    def close(self) -> None:
        self.release()
        self.writer.close()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter | _Down, note: Callable[[bytes], None]
) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            note(data)
            writer.write(data)
            await writer.drain()
    writer.close()
