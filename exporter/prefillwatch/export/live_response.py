"""`/api/live` on the wire: server-sent events for one viewer until it leaves or there are no more."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from prefillwatch.export.viewers import Viewer, Viewers

EVENT_STREAM: Final = "text/event-stream"


class LiveResponse(Response):
    """Sends what the viewer is offered. The viewer has joined; it leaves when this is over."""

    media_type = EVENT_STREAM

    def __init__(self, viewer: Viewer, viewers: Viewers) -> None:
        super().__init__()
        # A proxy in between must not collect events; nginx listens to this.
        self.raw_headers = [(b"content-type", EVENT_STREAM.encode()), (b"x-accel-buffering", b"no")]
        self._viewer = viewer
        self._viewers = viewers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        gone = asyncio.ensure_future(self._until_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while (message := await self._viewer.next()) is not None:
                await send({"type": "http.response.body", "body": message, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()
            self._viewers.leave(self._viewer)

    async def _until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._viewer.end()
