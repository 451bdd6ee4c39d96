"""The server behind the sidecar under attack: `python -m tests.hostile.upstream`. It prints its port.

A request names its answer in the header ``X-Script``, ``NAME`` or ``NAME:NUMBER``; the answers are in `answers`. It is
a process of its own, so that neither its work nor the attacker's is taken for the sidecar's.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator

import uvloop
from tests.hostile.answers import SCRIPTS, plain

_HIGH_WATER = 256 * 1024
_HEALTHY = {
    b"/health": (b"text/plain", b""),
    b"/v1/models": (b"application/json", b'{"object":"list","data":[{"id":"m","object":"model"}]}'),
    b"/metrics": (
        b"text/plain",
        b'vllm:num_requests_running{engine="0"} 1\nvllm:kv_cache_usage_perc{engine="0"} 0.5\n',
    ),
}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.set_write_buffer_limits(high=_HIGH_WATER)
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head[:-4].split(b"\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
            await _take_body(reader, headers)
            async for piece in _answer(first.split(b" ")[1].partition(b"?")[0], headers):
                if writer.transport.is_closing():
                    return
                writer.write(piece)
                await writer.drain()
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass
    finally:
        writer.transport.abort()


async def _take_body(reader: asyncio.StreamReader, headers: dict[bytes, bytes]) -> None:
    if b"transfer-encoding" in headers:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
    left = int(headers.get(b"content-length", 0))
    while left > 0 and (data := await reader.read(min(left, 1 << 20))):
        left -= len(data)


def _answer(path: bytes, headers: dict[bytes, bytes]) -> AsyncIterator[bytes]:
    name, _, number = headers.get(b"x-script", b"").decode("latin-1").partition(":")
    if name in SCRIPTS:
        return SCRIPTS[name](int(number or 0))
    content_type, body = _HEALTHY.get(path, (b"application/json", b"{}"))
    return plain(body, content_type)


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**20, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    asyncio.get_running_loop().run_in_executor(None, _until_closed)
    await server.serve_forever()


def _until_closed() -> None:
    """Whoever started us holds the other end of our input."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    uvloop.run(main())
