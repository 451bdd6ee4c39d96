"""A hop that keeps what vLLM sent, so that it can be laid beside what the client got: bytes of the very same answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tests.real.client import Answer, Exchange
from tests.real.hop import Hop, pump


@dataclass
class Tee(Hop):
    """Forwards connections to 127.0.0.1:`upstream_port`, in a thread of its own, and keeps both directions of each."""

    upstream_port: int
    port: int = 0
    connections: list[Exchange] = field(default_factory=list)

    def answer_to(self, request_id: str) -> Answer:
        """The last answer sent on a connection that carried a request with this X-Request-Id."""
        marker = f"x-request-id: {request_id}\r\n".encode()
        for connection in reversed(self.connections):
            requests = connection.sent.lower().split(b" http/1.1\r\n")
            if marker in requests[-1]:
                return connection.last_answer()
        raise LookupError(f"no request {request_id} came by")

    def requests(self, beginning: bytes) -> int:
        """How many requests that begin so came by."""
        return sum(connection.sent.count(beginning) for connection in self.connections)

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept = Exchange()
        self.connections.append(kept)
        upstream_reader, upstream_writer = await self.connect_upstream()
        up = asyncio.create_task(pump(reader, upstream_writer, kept.note_sent))
        down = asyncio.create_task(pump(upstream_reader, writer, kept.note_read))
        try:
            await asyncio.gather(up, down)
        finally:
            writer.close()
            upstream_writer.close()
