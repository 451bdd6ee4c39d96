"""The server behind the sidecar: answers each request as its plan says. A process of its own.

    python -m tests.soak.upstream PORT JOURNAL

The journal gets one line per request that arrived whole: its number, tokens sent, whether its body was what was meant.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import socket
import struct
import sys
from pathlib import Path
from typing import Any, TextIO

import httptools
from tests.soak.plans import BROKEN, HEADER, MODEL, Answer, Toxic

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nX-Body: %b\r\n%b\r\n\r\n"
_SLICE_BYTES = 7
_BANDWIDTH = 2_000  # bytes per second


class Connection(asyncio.Protocol):
    """Takes requests one after the other."""

    def __init__(self, journal: TextIO) -> None:
        self.journal = journal
        self.task: asyncio.Task[None] | None = None
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=65536)
        self._new_request()

    def _new_request(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.path = b""
        self.told = ""
        self.digest = hashlib.sha256()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.writable.set()
        if self.task is not None:
            self.task.cancel()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    # The parser's callbacks
    def on_url(self, url: bytes) -> None:
        self.path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == HEADER.encode():
            self.told = value.decode()

    def on_body(self, body: bytes) -> None:
        self.digest.update(body)

    def on_message_complete(self) -> None:
        path, told, digest = self.path, self.told, self.digest.hexdigest().encode()
        self._new_request()
        if not told:
            self._plain(path)
            return
        self.task = asyncio.ensure_future(self._answer(Answer.from_header(told), digest))

    def _plain(self, path: bytes) -> None:
        """What the sidecar itself asks for."""
        kind = b"application/json"
        body = b"{}"
        if path == b"/v1/models":
            body = json.dumps({"data": [{"id": MODEL}]}).encode()
        elif path == b"/metrics":
            kind, body = (
                b"text/plain",
                b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0"} 0\n',
            )
        self.transport.write(_HEAD % (kind, b"", b"Content-Length: %d" % len(body)) + body)

    async def _answer(self, answer: Answer, digest: bytes) -> None:
        sent = 0
        try:
            if not answer.stream:
                await next_step(answer.gap_s)
                body = json.dumps(whole_answer(answer)).encode()
                await self._write(
                    answer, _HEAD % (b"application/json", digest, b"Content-Length: %d" % len(body)) + body
                )
                sent = answer.tokens
                return
            await self._write(answer, _HEAD % (b"text/event-stream", digest, b"Transfer-Encoding: chunked"))
            await asyncio.sleep(answer.hold_s)
            for index in range(answer.breaks_after):
                await next_step(answer.gap_s)
                await self._write(answer, event(answer, answer.token(index)))
                sent += 1
            await self._end(answer)
        finally:
            self.journal.write(json.dumps({"number": answer.number, "sent": sent}) + "\n")

    async def _end(self, answer: Answer) -> None:
        if answer.toxic is Toxic.RESET:
            opened = self.transport.get_extra_info("socket")
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if answer.toxic in BROKEN:
            self.transport.close()
            return
        if answer.toxic is Toxic.TIMEOUT:
            await asyncio.sleep(3600)
        await asyncio.sleep(answer.hold_end_s)
        if answer.usage:
            await self._write(answer, event(answer, None))
        await self._write(answer, chunk(b"data: [DONE]\n\n"))
        if answer.toxic is Toxic.SLOW_CLOSE:
            await asyncio.sleep(1.0)
        await self._write(answer, b"0\r\n\r\n")

    async def _write(self, answer: Answer, data: bytes) -> None:
        if answer.toxic is Toxic.LATENCY:
            await asyncio.sleep(0.2)
        if answer.toxic is Toxic.SLICING:
            for start in range(0, len(data), _SLICE_BYTES):
                self.transport.write(data[start : start + _SLICE_BYTES])
                await asyncio.sleep(0.001)
        else:
            self.transport.write(data)
        if answer.toxic is Toxic.BANDWIDTH:
            await asyncio.sleep(len(data) / _BANDWIDTH)
        await self.writable.wait()


async def next_step(gap_s: float) -> None:
    await asyncio.sleep(gap_s - asyncio.get_running_loop().time() % gap_s)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(answer: Answer, text: str | None) -> bytes:
    """One token, or the usage at the end."""
    told: dict[str, Any] = {"id": f"chatcmpl-{answer.number}", "object": "chat.completion.chunk", "model": MODEL}
    if text is None:
        told |= {"choices": [], "usage": usage(answer)}
    else:
        told["choices"] = [{"index": 0, "delta": {"content": text}, "finish_reason": None}]
    return chunk(b"data: " + json.dumps(told).encode() + b"\n\n")


def usage(answer: Answer) -> dict[str, int]:
    return {"prompt_tokens": 10, "completion_tokens": answer.tokens, "total_tokens": answer.tokens + 10}


def whole_answer(answer: Answer) -> dict[str, Any]:
    text = "".join(map(answer.token, range(answer.tokens)))
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": f"chatcmpl-{answer.number}", "model": MODEL, "choices": [choice], "usage": usage(answer)}


async def serve(port: int, journal: TextIO) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(journal), "127.0.0.1", port, backlog=4096)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with Path(sys.argv[2]).open("a", buffering=1) as opened, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(int(sys.argv[1]), opened))
