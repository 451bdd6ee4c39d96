"""`/api/live` over sockets: framing, limits, leaving, credentials and the end of the server."""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
from collections.abc import Awaitable, Callable

import pytest
from tests.export.test_admin import View
from tests.kit.eventually import soon

from prefillwatch.export.admin import create_app
from prefillwatch.export.admin_auth import ANYBODY, Credentials
from prefillwatch.export.admin_server import serve_admin
from prefillwatch.export.viewers import MOST_VIEWERS

pytestmark = pytest.mark.apart

GET = "GET /api/live HTTP/1.1\r\nHost: a\r\n{}\r\n"
LIMIT_S = 10.0


class Connection:
    """A viewer's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int, *headers: str, method: str = "GET") -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        request = GET.format("".join(f"{header}\r\n" for header in headers)).replace("GET", method, 1)
        writer.write(request.encode())
        return cls(reader, writer)

    async def until(self, mark: bytes) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(mark), LIMIT_S)

    async def rest(self) -> bytes:
        return await asyncio.wait_for(self.reader.read(), LIMIT_S)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


class Server:
    def __init__(self, view: View, port: int, stop: asyncio.Event) -> None:
        self.view = view
        self.port = port
        self.stop = stop


def serving(client: Callable[[Server], Awaitable[None]], credentials: Credentials = ANYBODY) -> None:
    async def go() -> None:
        view, stop = View(), asyncio.Event()
        listener = socket.create_server(("127.0.0.1", 0))
        server = asyncio.create_task(serve_admin(create_app(view, credentials), [listener], stop))
        try:
            await client(Server(view, listener.getsockname()[1], stop))
        finally:
            stop.set()
            await asyncio.wait_for(server, LIMIT_S)

    asyncio.run(go())


def test_events_come_as_they_are_sent() -> None:
    async def client(server: Server) -> None:
        viewer = await Connection.open(server.port)
        head = (await viewer.until(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 200 ")
        assert b"content-type: text/event-stream\r\n" in head
        assert b"cache-control: no-store\r\n" in head
        assert b"content-security-policy: default-src 'none';" in head
        assert b"content-length" not in head
        assert b"event: hello\n\n" in await viewer.until(b"hello\n\n")
        server.view.viewers.send(b"event: frame\ndata: {}\n\n")
        assert b"event: frame\ndata: {}\n\n" in await viewer.until(b"{}\n\n")
        await viewer.close()

    serving(client)


def test_a_viewer_that_hangs_up_is_not_sent_for_any_more() -> None:
    async def client(server: Server) -> None:
        viewer = await Connection.open(server.port)
        await viewer.until(b"hello\n\n")
        assert server.view.watched == ["begin"]
        await viewer.close()
        await soon(lambda: server.view.watched == ["begin", "end"])
        assert len(server.view.viewers) == 0

    serving(client)


def test_too_many_viewers_are_told_so_and_a_place_that_is_free_is_given_again() -> None:
    async def client(server: Server) -> None:
        viewers = [await Connection.open(server.port) for _ in range(MOST_VIEWERS)]
        for viewer in viewers:
            await viewer.until(b"hello\n\n")
        refused = await Connection.open(server.port, "Connection: close")
        answer = await refused.rest()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 10" in answer.lower()
        assert b"16 watch already" in answer
        await refused.close()
        await viewers[0].close()
        await soon(lambda: len(server.view.viewers) == MOST_VIEWERS - 1)
        again = await Connection.open(server.port)
        await again.until(b"hello\n\n")
        for viewer in (again, *viewers[1:]):
            await viewer.close()

    serving(client)


def test_one_that_does_not_read_holds_up_nobody_and_little_is_kept_for_it() -> None:
    async def client(server: Server) -> None:
        stuck, other = await Connection.open(server.port), await Connection.open(server.port)
        await stuck.until(b"hello\n\n")
        await other.until(b"hello\n\n")
        message = b"event: frame\ndata: %s\n\n" % (b"x" * 100_000)
        for _ in range(150):  # far more than sockets take
            server.view.viewers.send(message)
            assert (await other.until(b"x\n\n")).count(b"x") == 100_000  # in several chunks
        (lost,) = [viewer for viewer in server.view.viewers._watching if viewer._lost]
        assert len(lost._messages) == 0
        await other.close()
        await stuck.close()

    serving(client)


def test_the_server_ends_although_somebody_watches(caplog: pytest.LogCaptureFixture) -> None:
    async def client(server: Server) -> None:
        viewer = await Connection.open(server.port)
        await viewer.until(b"hello\n\n")
        server.stop.set()
        assert (await viewer.rest()).endswith(b"0\r\n\r\n")  # a whole answer, not one that was cut
        await viewer.close()

    with caplog.at_level(logging.WARNING):
        serving(client)
    assert caplog.text == ""


def test_a_look_at_the_headers_makes_nobody_a_viewer() -> None:
    async def client(server: Server) -> None:
        asked = await Connection.open(server.port, "Connection: close", method="HEAD")
        assert b"text/event-stream" in await asked.rest()
        await asked.close()
        assert server.view.watched == []

    serving(client)


@pytest.mark.parametrize(
    "header",
    ["Authorization: Bearer s3cret", "Authorization: Basic " + base64.b64encode(b"admin:pass").decode()],
)
def test_credentials_are_asked_for(header: str) -> None:
    async def client(server: Server) -> None:
        refused = await Connection.open(server.port, "Connection: close")
        assert (await refused.rest()).startswith(b"HTTP/1.1 401 ")
        await refused.close()
        assert server.view.watched == []
        viewer = await Connection.open(server.port, header)
        await viewer.until(b"hello\n\n")
        await viewer.close()

    serving(client, Credentials(bearer_token="s3cret", basic_auth="admin:pass"))
