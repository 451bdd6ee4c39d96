"""A server of pages in a thread: for what reads a server from outside, such as `check` and `doctor`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: Status and body; or bodies that are answered in turn, the last for ever; or None: no answer ever comes.
Behaviour = tuple[int, bytes] | list[bytes] | None


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address at which requests get this handler, each in a thread."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Pages:
    """Answers GET by path; what is not in ``routes`` is 404. ``asked`` has path and Authorization of each request."""

    def __init__(self) -> None:
        self.routes: dict[str, Behaviour] = {}
        self.asked: list[tuple[str, str | None]] = []
        self._ending = threading.Event()
        pages = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                pages.asked.append((self.path, self.headers.get("authorization")))
                pages._answer(self)

            def log_message(self, *_: object) -> None:
                """Nothing: the output of a test belongs to what it tests."""

        self._stack = ExitStack()
        self.url = self._stack.enter_context(served(Handler))
        self.port = int(self.url.rpartition(":")[2])

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        behaviour = self.routes.get(handler.path, (404, b"not found"))
        if behaviour is None:
            self._ending.wait()
            return
        if isinstance(behaviour, list):
            status, body = 200, behaviour.pop(0) if len(behaviour) > 1 else behaviour[0]
        else:
            status, body = behaviour
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def close(self) -> None:
        self._ending.set()
        self._stack.close()
