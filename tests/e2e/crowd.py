"""An observer in this process with its admin server, and many streams that a script feeds into its tap."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from types import TracebackType

from tests.core.script import CHAT, chunk

from prefillwatch.core.inputs import Health, Models, TapPacket
from prefillwatch.export.admin import create_app
from prefillwatch.export.admin_server import serve_admin
from prefillwatch.observer.observation import Observation
from prefillwatch.settings.declared import DEFAULTS
from prefillwatch.settings.views import analysis_view
from prefillwatch.wire.tap import Kind, PacketBuilder, RequestHead, ResponseHead, encode_payload

STEP_S = 0.1
_JOIN_S = 20.0


class Crowd:
    """So many streams, each with ten tokens a second, but for the first ``frozen`` of them; ``models`` take turns.

    Nobody asks upstream: ``up`` says whether it is healthy.
    """

    def __init__(self, streams: int, name: str = "reader", models: tuple[str, ...] = ("m",)) -> None:
        self.frozen = 0
        self.up = True
        self.observation: Observation | None = None
        self.url = ""
        self._streams = streams
        self._name = name
        self._models = models
        self._stop = threading.Event()
        self._serving = threading.Event()
        self._builder = PacketBuilder(0, 1)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Crowd:
        self._thread.start()
        assert self._serving.wait(_JOIN_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(_JOIN_S)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        self.observation = observed = Observation(analysis_view(DEFAULTS))
        observed.feed(Models(tuple(self._models)))
        listener, stop = socket.create_server(("127.0.0.1", 0)), asyncio.Event()
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = asyncio.create_task(serve_admin(create_app(observed), [listener], stop))
        self._begin()
        self._serving.set()
        while not self._stop.is_set():
            observed.feed(Health(self.up))
            self._tokens()
            for packet in self._builder.take_all():
                observed.feed(TapPacket(packet))
            observed.beat()
            await asyncio.sleep(STEP_S)
        stop.set()
        await server

    def _begin(self) -> None:
        for stream in range(self._streams):
            model = self._models[stream % len(self._models)]
            body = json.dumps({"model": model, "stream": True, "messages": []}).encode()
            name = f"{self._name}-{stream}"
            head = RequestHead("POST", CHAT, "application/json", request_id=name, content_length=len(body))
            self._add(stream, Kind.REQUEST, encode_payload(head))
            self._add(stream, Kind.REQUEST_BODY, body)
            self._add(stream, Kind.REQUEST_END, len(body).to_bytes(8, "little"))
            self._add(stream, Kind.SENT)
            self._add(stream, Kind.RESPONSE, encode_payload(ResponseHead(200, "text/event-stream")))

    def _tokens(self) -> None:
        token = chunk()
        for stream in range(self.frozen, self._streams):
            self._add(stream, Kind.DATA, token)

    def _add(self, stream: int, kind: Kind, payload: bytes = b"") -> None:
        times, keys, payloads = self._builder.columns
        times.append(time.monotonic_ns())
        keys.append((stream + 1) << 8 | kind)  # relays count from 1: 0 is the relay itself
        payloads.append(payload)
