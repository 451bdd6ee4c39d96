"""What `/readyz` says while upstream is slow, odd, ill or gone, and while processes of ours stand still."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from tests.e2e.processes import Sidecar, Sim, Stream
from tests.kit.eventually import eventually

TOKEN = (
    b'data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"t"}}]}\n\n'
)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Upstream:
    """Answers /health by a script, one entry per check, and chats with a token every 20 ms for ever."""

    def __init__(self) -> None:
        self.health: Iterator[str] = itertools.repeat("ok")
        self.checks = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it is closed already
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                opened, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(opened,), daemon=True).start()

    def _serve(self, opened: socket.socket) -> None:
        with opened, contextlib.suppress(OSError):  # the other side has had enough
            self._answer(opened, opened.recv(65536))

    def _answer(self, opened: socket.socket, request: bytes) -> None:
        if request.startswith(b"POST "):
            opened.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            while True:
                opened.sendall(TOKEN)
                time.sleep(0.02)
        if request.startswith(b"GET /health "):
            self.checks += 1
            match next(self.health):
                case "late":
                    time.sleep(6.0)
                case "lost":
                    return
                case "ill":
                    opened.sendall(
                        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    )
                    return
        opened.sendall(OK)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    upstream = Upstream()
    yield upstream
    upstream.close()


def readiness_for(sidecar: Sidecar, seconds: float) -> set[int]:
    """All that it says in this time."""
    said, end = set(), time.monotonic() + seconds
    while time.monotonic() < end:
        said.add(sidecar.readiness())
        time.sleep(0.1)
    return said


def reason(sidecar: Sidecar) -> str:
    return str(httpx.get(f"{sidecar.admin}/readyz").json().get("reason", ""))


def test_late_checks_do_not_count_while_tokens_arrive(upstream: Upstream, start: Callable[..., Sidecar]) -> None:
    sidecar = start(Sidecar, "serve", "--upstream", upstream.url, "--health-misses", "1")
    with httpx.stream("POST", f"{sidecar.url}/v1/chat/completions", json={"model": "m", "stream": True}) as answer:
        tokens = answer.iter_raw()
        next(tokens)
        reader = threading.Thread(target=lambda: [None for _ in tokens], daemon=True)
        reader.start()
        upstream.health = itertools.repeat("late")
        before = upstream.checks
        assert readiness_for(sidecar, 12) == {200}
        assert upstream.checks >= before + 2
        assert sidecar.value("up") == 1
        assert (sidecar.value("upstream_health_check_duration_seconds") or 0) >= 5
        assert (sidecar.value("upstream_health_check_failures_total", reason="timeout") or 0) >= 1
        upstream.health = itertools.repeat("ill")
        eventually(lambda: sidecar.readiness() == 503)
        assert "it says 503" in reason(sidecar)
        eventually(lambda: sidecar.value("up") == 0)
        sidecar.kill()  # ends the answer
        reader.join(20)


def test_every_second_check_lost_does_not_make_it_flap(upstream: Upstream, start: Callable[..., Sidecar]) -> None:
    upstream.health = itertools.cycle(["ok", "lost"])
    sidecar = start(Sidecar, "serve", "--upstream", upstream.url, "--scrape-interval", "200ms")
    before = upstream.checks
    assert readiness_for(sidecar, 4) == {200}
    assert upstream.checks >= before + 6


def test_an_upstream_that_is_gone_is_told_and_so_is_its_return(
    upstream: Upstream, start: Callable[..., Sidecar]
) -> None:
    sidecar = start(Sidecar, "serve", "--upstream", upstream.url)
    upstream.close()
    eventually(lambda: sidecar.readiness() == 503)
    assert "connection refused" in reason(sidecar)


def test_readiness_does_not_depend_on_the_observer(sim: Sim, start: Callable[..., Sidecar]) -> None:
    sidecar = start(Sidecar, "serve", "--upstream", sim.url)
    (observer,) = sidecar.pids("observer")
    stream = Stream(sidecar.url, tokens=100).begin()
    os.kill(observer, signal.SIGSTOP)
    assert readiness_for(sidecar, 3) == {200}
    assert httpx.get(f"{sidecar.admin}/healthz").json() == {"status": "ok"}
    answer = httpx.get(f"{sidecar.admin}/metrics", timeout=30)
    assert answer.status_code == 503
    assert "busy" in answer.json()["error"]
    os.kill(observer, signal.SIGCONT)
    assert stream.end().done
    eventually(lambda: httpx.get(f"{sidecar.admin}/metrics").status_code == 200)


def test_a_relay_that_stands_still_makes_it_unready_and_is_replaced(sim: Sim, start: Callable[..., Sidecar]) -> None:
    sidecar = start(Sidecar, "serve", "--upstream", sim.url, "--relays", "2", "--mute-limit", "6s")
    stopped, _ = sidecar.pids("relay")
    os.kill(stopped, signal.SIGSTOP)
    eventually(lambda: sidecar.readiness() == 503)
    assert "is mute" in reason(sidecar)
    assert sidecar.value("relay_serving") == 1  # of two
    # New clients are served by the other one, also those that the kernel had chosen the stopped one for.
    assert all(Stream(sidecar.url, tokens=2).end().done for _ in range(12))
    eventually(lambda: stopped not in sidecar.pids("relay"))
    eventually(lambda: sidecar.readiness() == 200)
    assert sidecar.value("relay_restarts_total") == 1
    assert sidecar.value("relay_serving") == 2
