"""An answer that is made while the engine steps: one event per chunk, and fewer and fatter ones for a slow reader."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send


class Answer(Response):
    """Filled by a generation, sent by the server. Nothing is sent before the first token: until then it may become an
    answer in one piece."""

    def __init__(self) -> None:
        self.started = False
        #: Called once if the client goes away before the answer is complete.
        self.on_close: Callable[[], None] | None = None
        #: Called when a slow reader has caught up.
        self.on_drain: Callable[[], None] | None = None
        self._messages: deque[Message] = deque()
        self._news = asyncio.Event()
        self._complete = False
        self._sending = False
        self._held_back = False

    @property
    def blocked(self) -> bool:
        """The reader is behind, so that a send has not returned yet: hold tokens back until `on_drain`."""
        self._held_back = self._held_back or self._sending
        return self._sending

    def respond(self, body: bytes) -> None:
        """The whole answer, as JSON."""
        self._start([(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())])
        self._end(body)

    def start_stream(self) -> None:
        self._start([(b"content-type", b"text/event-stream; charset=utf-8")])

    def send(self, *events: bytes) -> None:
        self._messages.extend({"type": "http.response.body", "body": event, "more_body": True} for event in events)
        self._news.set()

    def end_stream(self, *events: bytes) -> None:
        self.send(*events)
        self._end(b"")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        watching = asyncio.ensure_future(_left(receive))
        watching.add_done_callback(lambda _: self._news.set())
        try:
            while not watching.done():
                await self._news.wait()
                self._news.clear()
                await self._send_all(send)
                if self._complete and not self._messages:
                    return
        finally:
            watching.cancel()
            if self.on_close is not None:
                self.on_close()

    async def _send_all(self, send: Send) -> None:
        while self._messages:
            self._sending = True
            await send(self._messages.popleft())
            self._sending = False
            if self._held_back and self.on_drain is not None:
                self._held_back = False
                self.on_drain()

    def _start(self, headers: list[tuple[bytes, bytes]]) -> None:
        self.started = True
        self._messages.append({"type": "http.response.start", "status": 200, "headers": headers})

    def _end(self, body: bytes) -> None:
        self._complete = True
        self._messages.append({"type": "http.response.body", "body": body, "more_body": False})
        self._news.set()


async def _left(receive: Receive) -> None:
    """Ends when the client has gone."""
    message: dict[str, Any] = {}
    while message.get("type") != "http.disconnect":
        message = dict(await receive())
