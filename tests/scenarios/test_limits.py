"""Limits of ours, from a client's socket to what an operator sees of them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

import httpx
import pytest
from tests.e2e.processes import Sidecar, calm_sidecar
from tests.kit.eventually import eventually
from tests.kit.pages import served

MIB = 2**20


class _Echo(BaseHTTPRequestHandler):
    """Answers with the lines of the request's head."""

    def do_GET(self) -> None:
        body = str(self.headers).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing."""


@pytest.fixture
def upstream() -> Iterator[str]:
    with served(_Echo) as url:
        yield url


@pytest.fixture
def sidecar(upstream: str) -> Iterator[Sidecar]:
    limits = ("--max-body", "4MiB", "--max-clients", "100", "--client-write-timeout", "1s")
    with calm_sidecar("--upstream", upstream, *limits) as command:
        yield command


def test_what_is_refused_and_what_is_held_is_seen(sidecar: Sidecar) -> None:
    assert sidecar.value("refused_requests_total", reason="bodies_full") == 0
    parts = urlsplit(sidecar.url)
    with socket.create_connection((parts.hostname, parts.port or 80)) as unfinished:
        unfinished.sendall(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (3 * MIB) + b"x" * (2 * MIB))
        eventually(lambda: sidecar.value("relay_held_bytes", of="requests") == 3 * MIB)
        (relay,) = sidecar.state()["relays"].values()
        assert (relay["request_bytes_held"], relay["client_limit"]) == (3 * MIB, 100)
    answer = httpx.post(f"{sidecar.url}/x", content=b"x" * (5 * MIB), trust_env=False)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
    eventually(lambda: sidecar.value("refused_requests_total", reason="body_too_large") == 1)
    eventually(lambda: sidecar.value("relay_held_bytes", of="requests") == 0)
    assert sidecar.value("relay_client_limit") == 100


def test_a_request_that_comes_back_to_its_sidecar_is_refused_and_counted(sidecar: Sidecar) -> None:
    head = httpx.get(f"{sidecar.url}/head", trust_env=False).text
    (via,) = [line.partition(": ")[2] for line in head.splitlines() if line.lower().startswith("via: ")]
    assert "X-Forwarded-For: 127.0.0.1" in head.splitlines()
    answer = httpx.get(f"{sidecar.url}/v1/models", headers={"Via": via}, trust_env=False)
    assert (answer.status_code, answer.json()["error"]["code"]) == (508, "loop")
    eventually(lambda: sidecar.value("refused_requests_total", reason="loop") == 1)
    assert "upstream leads back to this prefillwatch" in sidecar.output
