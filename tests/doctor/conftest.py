"""Recorded looks at servers, and a server that answers as told."""

from __future__ import annotations

import functools
import json
import lzma
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from prefillwatch.doctor.look import Look, read_advice, read_incidents
from prefillwatch.doctor.page import Page
from prefillwatch.doctor.readers import moment_of

RECORDED = Path(__file__).parents[1] / "data" / "doctor"


def recorded(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(lzma.decompress((RECORDED / f"{name}.json.xz").read_bytes()))
    return document


@pytest.fixture(scope="session")
def look() -> Callable[[str, str], Look]:
    """A recorded look, by scenario and by whose pages they are: ``sidecar`` or ``server``."""

    @functools.cache
    def read(name: str, kind: str) -> Look:
        told = recorded(name)[kind]
        pages = [Page(text.encode()) for text in told["pages"]]
        return Look(
            last=pages[-1],
            first=pages[0],
            seconds=told["seconds"],
            moments=tuple(map(moment_of, pages)),
            incidents=read_incidents(json.dumps(told["incidents"]).encode(), told["since"]) if "since" in told else (),
            advice=read_advice(json.dumps(told["state"]).encode()) if "state" in told else (),
        )

    return read


Behaviour = tuple[int, bytes] | list[bytes] | None


class Server:
    """Answers each path with a status and a body; a list is answered in turn, its last for ever; None: never."""

    def __init__(self) -> None:
        self.routes: dict[str, Behaviour] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.ending = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append((self.path, self.headers.get("authorization")))
                server.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        behaviour = self.routes.get(handler.path, (404, b"not found"))
        if behaviour is None:
            self.ending.wait()
            return
        if isinstance(behaviour, list):
            status, body = 200, behaviour.pop(0) if len(behaviour) > 1 else behaviour[0]
        else:
            status, body = behaviour
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def stop(self) -> None:
        self.ending.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()
