"""A hop between the sidecar and vLLM that buffers: it keeps the bytes of answers and lets them go in bursts."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from tests.real.hop import Hop, pump


@dataclass
class BufferingHop(Hop):
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

    async def _listen(self) -> asyncio.Server:
        self.releaser = asyncio.create_task(self._release_together())
        return await super()._listen()

    async def _release_together(self) -> None:
        released = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            if time.monotonic() - released >= self.hold_seconds:
                released = time.monotonic()
                if not self.hold_bytes:
                    for down in self._downs:
                        down.release()

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await self.connect_upstream()
        down = _Down(self, writer)
        self._downs.add(down)
        up = asyncio.create_task(pump(reader, upstream_writer, down.asked))
        try:
            await asyncio.gather(up, pump(upstream_reader, down, lambda data: None))
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
