"""A server that does as it is told: `python fake_server.py PORT DEED [FLAGS…]`. Any POST kills it."""

from __future__ import annotations

import http.server
import os
import signal
import subprocess
import sys
import time

MODELS = b'{"object": "list", "data": [{"id": "fake"}]}'
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        pages = {"/v1/models": MODELS} if sys.argv[2] == "plain" else {"/health": b"", "/v1/models": MODELS}
        body = pages.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def do_POST(self) -> None:
        print("RuntimeError: engine is dead", flush=True)
        os._exit(7)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing: what it says is what it is told to."""


def main(port: int, deed: str) -> None:
    print("flags:", *sys.argv[3:], flush=True)
    if deed == "fails":
        print("ValueError: no memory for that", flush=True)
        sys.exit(1)
    if deed == "hangs":
        time.sleep(60)
    if deed == "stubborn":
        signal.signal(signal.SIGTERM, lambda number, frame: print("staying", flush=True))
    if deed == "parent":
        child = subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        child.stdout.readline()
        print("child", child.pid, flush=True)
    http.server.ThreadingHTTPServer(("127.0.0.1", port), _Handler).serve_forever(poll_interval=0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
