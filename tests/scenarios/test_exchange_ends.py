"""How exchanges end, from the bytes of an odd upstream to what an operator sees of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx
import pytest
from tests.e2e.processes import Sidecar, calm_sidecar
from tests.kit.eventually import eventually
from tests.kit.pages import served

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"word"}}]}\n\n'


class _Odd(BaseHTTPRequestHandler):
    """Knows no stream_options, and breaks off answers for whoever names a user."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "stream_options" in asked:
            self._json(400, {"error": {"message": "stream_options: extra fields are not permitted"}})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(EVENT), EVENT))
        if "user" not in asked:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = "user" in asked

    def do_GET(self) -> None:
        self._json(200, {"data": [{"id": "m"}]})

    def _json(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing."""


@pytest.fixture
def upstream() -> Iterator[str]:
    with served(_Odd) as url:
        yield url


@pytest.fixture
def sidecar(upstream: str) -> Iterator[Sidecar]:
    with calm_sidecar("--upstream", upstream, "--usage", "inject") as command:
        yield command


def chat(sidecar: Sidecar, **more: str) -> httpx.Response:
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}], **more}
    return httpx.post(f"{sidecar.url}/v1/chat/completions", json=body, trust_env=False)


def test_a_server_that_refuses_to_be_asked_for_usage_costs_one_request_and_is_told_of(sidecar: Sidecar) -> None:
    for _ in range(3):
        answer = chat(sidecar)
        assert (answer.status_code, answer.content) == (200, EVENT)
    eventually(lambda: sidecar.value("relay_usage_rests", relay="0") == 1)
    assert sidecar.value("relay_usage_refused_total", relay="0") == 1
    assert sidecar.output.count("upstream refuses requests that ask for usage") == 1
    words = [sys.executable, "-m", "prefillwatch", "doctor", "--json", "-", "--watch", "0s", sidecar.admin]
    told = json.loads(subprocess.run(words, capture_output=True, check=False).stdout)
    assert "usage_refused" in json.dumps(told)


def test_answers_that_upstream_breaks_off_are_counted_by_how(sidecar: Sidecar) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        chat(sidecar, user="somebody unlucky")
    eventually(lambda: sidecar.value("upstream_truncated_total", reason="closed") == 1)
