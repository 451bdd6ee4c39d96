"""The admin server: uvicorn, fed with connections that the door has accepted, in the event loop of the observer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Generator, Sequence

import uvicorn
from starlette.applications import Starlette

from prefillwatch.door.conversation import Pages
from prefillwatch.door.door import Door
from prefillwatch.door.observer_link import MOST_AT_ONCE, ObserverLink, take_passed


class _Server(uvicorn.Server):
    """uvicorn without signal handlers of its own: the process it runs in has other things to end as well.

    And without a look ten times a second at whether to end: `leave` says so. It listens nowhere: `take` gives it
    connections.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        config.load()
        self._leaving = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def take(self, opened: socket.socket) -> None:
        """Serve a connection that the door has accepted."""
        opened.setblocking(False)
        with contextlib.suppress(OSError):  # it is over already
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, opened)

    def _protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state={}
        )

    def leave(self) -> None:
        self.should_exit = True
        self._leaving.set()

    async def main_loop(self) -> None:
        while not self.should_exit:
            await self.on_tick(0)  # renews the date in the headers
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), 1.0)


async def serve_passed(app: Starlette, channel: socket.socket, stop: asyncio.Event | None = None) -> None:
    """Serve the connections that come through ``channel``, in the running event loop, until ``stop`` is set or the task
    is cancelled; the channel is closed then. Requests under way get two seconds to end."""
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=2 * MOST_AT_ONCE,  # the door passes on half as many at most
        timeout_graceful_shutdown=2,
    )
    server = _Server(config)
    taking: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()

    def take() -> None:
        taken = take_passed(channel)
        if taken is None:
            loop.remove_reader(channel.fileno())
        for opened in taken or ():
            task = loop.create_task(server.take(opened))
            taking.add(task)
            task.add_done_callback(taking.discard)

    channel.setblocking(False)
    loop.add_reader(channel.fileno(), take)
    serving = asyncio.ensure_future(server.serve([]))
    stopping = asyncio.ensure_future((stop or asyncio.Event()).wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        loop.remove_reader(channel.fileno())
        channel.close()
        app.state.viewers.close()  # they would never leave by themselves
        server.leave()
        await serving


async def serve_admin(app: Starlette, listeners: Sequence[socket.socket], stop: asyncio.Event | None = None) -> None:
    """Door and server in one: serve on bound sockets until ``stop`` is set or the task is cancelled; the sockets are
    closed then. For where there is no supervisor."""
    link = ObserverLink()
    channel = socket.socket(fileno=os.dup(link.new_channel()))
    link.handed_over()
    door = Door(listeners, Pages(link, {}))
    door.open()
    try:
        await serve_passed(app, channel, stop)
    finally:
        for listener in listeners:
            asyncio.get_running_loop().remove_reader(listener.fileno())
            listener.close()
        link.lost("it ends")
        await door.close()
