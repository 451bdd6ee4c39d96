"""Troubles that the simulated server does not have: scripted upstreams, each with readers and a sidecar before it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.e2e.processes import CHAT, Sidecar
from tests.e2e.prometheus_stack import PATIENCE_S
from tests.scenarios.upstream import Upstream, metrics

#: More than a test runs for.
FOR_EVER = 1_000_000
RELAY_STOPS_S = 0.3


@dataclass
class Scripted:
    upstream: Upstream
    sidecar: Sidecar


@contextlib.contextmanager
def scripted() -> Iterator[Scripted]:
    with contextlib.ExitStack() as stopped:
        upstream = Upstream()
        stopped.callback(upstream.close)
        sidecar = Sidecar("serve", "--upstream", upstream.url)
        stopped.callback(sidecar.kill)
        yield Scripted(upstream, sidecar)


@contextlib.contextmanager
def late_and_bunched(place: Scripted) -> Iterator[None]:
    """The engine goes on while its API server hands nothing on, for one second or for three: bunches of one size would
    be those of a buffer, and shorter ones that bring all their tokens are no stalls."""
    seconds = itertools.cycle((1.2, 3.2))
    with streams(place.sidecar.url, 2), repeatedly(4.5, lambda: place.upstream.hold(next(seconds))):
        yield


@contextlib.contextmanager
def in_bursts(place: Scripted) -> Iterator[None]:
    """A hop lets go of all it holds every one and a half seconds, and of nothing in between."""
    with streams(place.sidecar.url, 2), repeatedly(1.5, lambda: place.upstream.hold(1.45)):
        yield


@contextlib.contextmanager
def thrown_out(place: Scripted) -> Iterator[None]:
    """The KV cache is full: one of four readers after the other is preempted for two seconds."""
    turns = itertools.count(1)

    def preempt() -> None:
        turn = next(turns)
        place.upstream.page = metrics(running=3, waiting=1, kv_usage=0.99, preemptions=turn)
        place.upstream.leave_out(f"reader-{turn % 4}", 2.0)

    place.upstream.page = metrics(running=4, kv_usage=0.97)
    with streams(place.sidecar.url, 4), repeatedly(2.5, preempt):
        yield


@contextlib.contextmanager
def mute(place: Scripted) -> Iterator[None]:
    """It is healthy, has forty requests in its queue, answers none, and no longer tells of its KV cache."""
    page = metrics(running=2, waiting=40).splitlines(keepends=True)
    place.upstream.page = "".join(line for line in page if "kv_cache" not in line)
    with streams(place.sidecar.url, 1, wait_seconds=FOR_EVER):
        yield


@contextlib.contextmanager
def starved(place: Scripted) -> Iterator[None]:
    """The relay gets no core for a third of the time, while it has tokens to hand on."""
    (relay,) = place.sidecar.pids("relay")

    def stop() -> None:
        os.kill(relay, signal.SIGSTOP)
        time.sleep(RELAY_STOPS_S)
        os.kill(relay, signal.SIGCONT)

    with streams(place.sidecar.url, 1), repeatedly(2 * RELAY_STOPS_S, stop):
        yield


@contextlib.contextmanager
def streams(url: str, count: int, **script: float) -> Iterator[None]:
    """Readers called reader-0 and so on, until the end of the block. ``script`` is for the upstream."""
    with contextlib.ExitStack() as stopped:
        for number in range(count):
            stopped.enter_context(_reader(url, f"reader-{number}", script))
        yield


@contextlib.contextmanager
def _reader(url: str, name: str, script: dict[str, float]) -> Iterator[None]:
    address = urlsplit(url)
    told = {"model": "m", "stream": True, "messages": [], "name": name, "prompt_tokens": 16, "tokens": FOR_EVER}
    body = json.dumps(told | script).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection((address.hostname, address.port or 80), timeout=PATIENCE_S) as connection:
        connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        connection.settimeout(None)
        thread = threading.Thread(target=_read_all, args=(connection,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_S)


def _read_all(connection: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        while connection.recv(65536):
            pass


@contextlib.contextmanager
def repeatedly(pause_s: float, act: Callable[[], None]) -> Iterator[None]:
    """Does it again and again, with a pause before each time, until the end of the block."""
    enough = threading.Event()

    def run() -> None:
        while not enough.wait(pause_s):
            act()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join(PATIENCE_S)
