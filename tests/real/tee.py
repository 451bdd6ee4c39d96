"""A hop that keeps what vLLM sent, so that it can be laid beside what the client got: bytes of the very same answer."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field

from tests.real.client import Answer, Exchange


@dataclass
class Tee:
    """Forwards connections to 127.0.0.1:`upstream_port`, in a thread of its own, and keeps both directions of each."""

    upstream_port: int
    port: int = 0
    connections: list[Exchange] = field(default_factory=list)

    def __enter__(self) -> Tee:
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

    def answer_to(self, request_id: str) -> Answer:
        """The last answer sent on a connection that carried a request with this X-Request-Id."""
        marker = f"x-request-id: {request_id}\r\n".encode()
        for connection in reversed(self.connections):
            requests = connection.sent.lower().split(b" http/1.1\r\n")
            if marker in requests[-1]:
                return connection.last_answer()
        raise LookupError(f"no request {request_id} came by")

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._forward, "127.0.0.1", 0)

    async def _close(self) -> None:
        self.server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept = Exchange()
        self.connections.append(kept)
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        up = asyncio.create_task(self._pump(reader, upstream_writer, kept.note_sent))
        down = asyncio.create_task(self._pump(upstream_reader, writer, kept.note_read))
        try:
            await asyncio.gather(up, down)
        finally:
            writer.close()
            upstream_writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note) -> None:  # type: ignore[no-untyped-def]
        try:
            while data := await reader.read(65536):
                note(data)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()
