"""A server in front of which a whole sidecar runs: each request says how it wants to be answered."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator

#: Of each piece of an answer without a line end.
PIECE = 64 * 1024
#: A token of so many bytes is no bulk yet, and a few thousand of them a second fill any queue.
HEAVY = 7_000
LATE_S = 6.0


class ScriptedServer:
    """Answers as the request's ``user`` says:

    - ``tokens 30 0.02``: so many tokens, one every so many seconds; ``heavy``: the same, 7 kB each
    - ``wait 30 0.02``: the same once `go_on` is set; ``steady 30 0.02``: until it is set, at most so many
    - ``bytes 30``: so many pieces of 64 KiB without a line end

    Without a ``user`` it is steady. ``health`` is what becomes of each health check: ok, late, lost or ill.
    """

    def __init__(self) -> None:
        self.health: Iterator[str] = itertools.repeat("ok")
        self.checks = 0
        self.go_on = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.go_on.set()
        with contextlib.suppress(OSError):  # it is closed already
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                opened, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(opened,), daemon=True).start()

    def _serve(self, opened: socket.socket) -> None:
        with contextlib.suppress(OSError), opened, opened.makefile("rb") as lines:
            while line := lines.readline():
                length = 0
                while (header := lines.readline()) not in (b"\r\n", b""):
                    if header.lower().startswith(b"content-length:"):
                        length = int(header.split(b":")[1])
                body = lines.read(length)
                if line.startswith(b"POST"):
                    self._stream(opened, json.loads(body).get("user", "steady 1000000 0.02").split())
                elif b" /health " not in line:
                    self._whole(opened, b'{"data":[{"id":"m"}]}' if b"/models" in line else b"{}")
                elif not self._check(opened):
                    return

    def _check(self, opened: socket.socket) -> bool:
        """Answer a health check; whether the connection is still good."""
        self.checks += 1
        deed = next(self.health)
        if deed == "late":
            time.sleep(LATE_S)
        if deed == "lost":
            return False
        self._whole(opened, b"{}", "503 Service Unavailable" if deed == "ill" else "200 OK")
        return True

    def _whole(self, opened: socket.socket, content: bytes, status: str = "200 OK") -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        opened.sendall(head.encode() + content)

    def _stream(self, opened: socket.socket, script: list[str]) -> None:
        opened.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        what, count = script[0], int(script[1])
        if what == "wait":
            self.go_on.wait()
        for number in range(count):
            if what == "steady" and self.go_on.is_set():
                break
            if what == "bytes":
                data = b"x" * PIECE
            else:
                text = "w" * (HEAVY if what == "heavy" else 4) + str(number)
                choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
                event = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
                data = b"data: %b\n\n" % json.dumps(event).encode()
            opened.sendall(b"%x\r\n%b\r\n" % (len(data), data))
            if what != "bytes":
                time.sleep(float(script[2]))
        opened.sendall(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
