"""The crowd: a number of clients that is kept up, each following a plan and comparing what it gets."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import httptools
from tests.soak.plans import HEADER, Leave, Plan
from tests.soak.seen import Seen

_SLOW_READS_PER_S = 20
_UPLOAD_PIECE = 64 * 1024
_IMPATIENCE_S = 120.0


class Client(asyncio.Protocol):
    """One request on a connection of its own."""

    def __init__(self, seen: Seen, clock: Callable[[], float]) -> None:
        self.seen = seen
        self.clock = clock
        self.parser = httptools.HttpResponseParser(self)
        self.over = asyncio.get_running_loop().create_future()
        self.writable = asyncio.Event()
        self.writable.set()
        self.heads = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        if self.over.done():
            return
        if self.seen.plan.slow:
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(1 / _SLOW_READS_PER_S, self._read_again)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.seen.broke_off(self.clock())
            self._end()
            return
        limit = self.seen.plan.gives_up_after
        if limit is not None and len(self.seen.tokens) >= limit:
            self.leave()

    def _read_again(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.writable.set()
        if not self.over.done():
            self.seen.broke_off(self.clock())
            self.over.set_result(None)

    def leave(self) -> None:
        if not self.over.done():
            self.seen.left(self.clock())
            self._end()

    def _end(self) -> None:
        self.over.set_result(None)
        self.transport.abort()

    # The parser's callbacks
    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-body":
            self.seen.body_digest = value.decode()

    def on_headers_complete(self) -> None:
        self.seen.status = self.parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self.seen.feed(body, self.clock())

    def on_message_complete(self) -> None:
        self.seen.complete(self.clock())
        self._end()


class Crowd:
    """Keeps ``size`` clients busy until it is told to stop; what each saw goes to ``report``."""

    def __init__(self, url: str, plans: Iterator[Plan], report: Callable[[Seen], None]) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        # Which certificate is served is looked at elsewhere: while it is renewed there are two of them.
        self.tls = ssl._create_unverified_context() if parts.scheme == "https" else None
        self.plans = plans
        self.report = report
        self.clock = asyncio.get_running_loop().time
        self.running: set[asyncio.Task[None]] = set()

    async def keep(self, size: int, seconds: float, *, per_second: float = 400.0) -> None:
        """Hold that many clients for so long; those that end are followed by new ones."""
        until = self.clock() + seconds
        while self.clock() < until:
            missing = min(size - len(self.running), max(1, int(per_second / 20)))
            for _ in range(max(0, missing)):
                task = asyncio.create_task(self._one(next(self.plans)))
                self.running.add(task)
                task.add_done_callback(self.running.discard)
            await asyncio.sleep(0.05)

    async def drain(self) -> None:
        """Let all of them end."""
        while self.running:
            await asyncio.wait(self.running)

    async def _one(self, plan: Plan) -> None:
        body = plan.body()
        seen = Seen(plan, started_s=self.clock(), expected_digest=hashlib.sha256(body).hexdigest())
        try:
            client = await self._connect(seen)
            try:
                await asyncio.wait_for(self._follow(client, plan, body), _IMPATIENCE_S)
            finally:
                client.transport.abort()
        except asyncio.TimeoutError:
            seen.ended_s = self.clock()  # its end stays open, which is a fault
        except OSError:
            seen.broke_off(self.clock())
        self.report(seen)

    async def _follow(self, client: Client, plan: Plan, body: bytes) -> None:
        await self._send(client, plan, body)
        await client.over

    async def _connect(self, seen: Seen) -> Client:
        loop = asyncio.get_running_loop()
        opened = socket.socket()
        opened.setblocking(False)
        if seen.plan.slow:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            await loop.sock_connect(opened, (self.host, self.port))
            name = self.host if self.tls is not None else None
            _, client = await loop.create_connection(
                lambda: Client(seen, self.clock), sock=opened, ssl=self.tls, server_hostname=name
            )
        except BaseException:
            opened.close()
            raise
        return client

    async def _send(self, client: Client, plan: Plan, body: bytes) -> None:
        framing = "Transfer-Encoding: chunked" if plan.chunked else f"Content-Length: {len(body)}"
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\n"
            f"X-Request-Id: soak-{plan.number}\r\n{HEADER}: {plan.answer.header()}\r\n{framing}\r\n\r\n"
        ).encode()
        if plan.leave is Leave.IN_HEAD:
            client.transport.write(head[: len(head) // 2])
            await asyncio.sleep(0.1)
            client.leave()
            return
        client.transport.write(head)
        pieces = [body[start : start + _UPLOAD_PIECE] for start in range(0, len(body), _UPLOAD_PIECE)]
        if plan.leave is Leave.IN_BODY:
            client.transport.write(body[: len(body) // 2])
            await asyncio.sleep(0.1)
            client.leave()
            return
        for piece in pieces:
            client.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if plan.chunked else piece)
            await client.writable.wait()
            if client.over.done():
                return
        if plan.chunked:
            client.transport.write(b"0\r\n\r\n")
        if plan.leave is Leave.WAITING:
            await asyncio.sleep(0.5)
            client.leave()
