"""A client that asks for a lot and then takes nothing for a while."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import dataclass

from tests.real.client import request_bytes

#: The kernel takes two to four megabytes on the way to a client on the same machine that does not read, because it
#: counts in segments, and these are large there. Small ones make it a hundredth of that.
_SEGMENT_BYTES, _BUFFER_BYTES = 536, 2048
#: And that is soon made by so many choices.
CHOICES = 8


@dataclass
class Pause:
    """When the client stopped and when it began to read again, monotonic ns; `taken` is what had come by then."""

    at_ns: int
    until_ns: int
    taken: int


class _Reader(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = 0
        self.closed = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.received += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


async def read_slowly(
    port: int, path: str, body: bytes, headers: dict[str, str], *, first: float, pause: float, limit: float
) -> Pause:
    """Read for `first` seconds, take nothing for `pause` seconds, then the rest, but not for more than `limit`."""
    sock = socket.socket()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", port))
    transport, reader = await loop.create_connection(_Reader, sock=sock)
    transport.write(request_bytes(path, body, headers))
    await asyncio.sleep(first)
    transport.pause_reading()
    at_ns, taken = time.monotonic_ns(), reader.received
    await asyncio.sleep(pause)
    transport.resume_reading()
    until_ns = time.monotonic_ns()
    await asyncio.wait([reader.closed], timeout=limit)
    transport.abort()
    return Pause(at_ns, until_ns, taken)
