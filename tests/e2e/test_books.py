"""The books of a running sidecar, after its observer stood still, was killed, or was flooded."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
from tests.e2e.processes import CHAT, Sidecar
from tests.e2e.scripted_server import PIECE, ScriptedServer
from tests.kit.eventually import PATIENCE_S, eventually

MIB = 2**20


class Reader:
    """Asks, and reads the answer to its end in a thread of its own."""

    def __init__(self, url: str, user: str) -> None:
        self.size = 0
        self.done = False
        host, _, port = url.removeprefix("http://").partition(":")
        self._socket = socket.create_connection((host, int(port)))
        body = json.dumps({"model": "m", "stream": True, "user": user, "messages": [{"role": "user", "content": "x"}]})
        head = (
            f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._socket.sendall((head + body).encode())
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        end = b""
        with contextlib.suppress(OSError), self._socket:
            while not self.done and (data := self._socket.recv(1 << 18)):
                self.size += len(data)
                end = (end + data)[-5:]
                self.done = end == b"0\r\n\r\n"

    def end(self) -> None:
        self._thread.join(60)
        assert self.done


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with closing(ScriptedServer()) as server:
        yield server


@pytest.fixture
def sidecar(server: ScriptedServer, start: Callable[..., Any]) -> Sidecar:
    sidecar: Sidecar = start(Sidecar, "serve", "--upstream", server.url)
    return sidecar


def gauges(sidecar: Sidecar) -> dict[str, float | None]:
    names = ("prefilling_requests", "decoding_streams", "frozen_streams")
    return {name: sidecar.value(name) for name in names}


def freezes(sidecar: Sidecar) -> list[dict[str, Any]]:
    found = httpx.get(f"{sidecar.admin}/api/incidents", timeout=PATIENCE_S).json()
    return [incident for incident in found if incident["kind"] == "freeze"]


def settled(sidecar: Sidecar, *, prefilling: int, decoding: int) -> None:
    """The gauges say so now and stay with it."""
    truth = {"prefilling_requests": prefilling, "decoding_streams": decoding, "frozen_streams": 0}
    eventually(lambda: gauges(sidecar) == truth)
    assert gauges(sidecar) == truth, sidecar.state()


def test_an_observer_that_stood_still_for_ten_seconds_catches_up(sidecar: Sidecar, server: ScriptedServer) -> None:
    steady = [Reader(sidecar.url, "steady 100000 0.02") for _ in range(4)]
    waiting = Reader(sidecar.url, "wait 1 0")
    eventually(lambda: sidecar.value("decoding_streams") == 4)
    (observer,) = sidecar.pids("observer")
    os.kill(observer, signal.SIGSTOP)
    try:
        heavy = [Reader(sidecar.url, "heavy 1500 0.004") for _ in range(8)]  # 84 MB, and room for half of that
        short = []
        for _ in range(100):
            short.append(Reader(sidecar.url, "tokens 3 0.01"))
            time.sleep(0.1)
        for reader in (*short, *heavy):
            reader.end()
    finally:
        os.kill(observer, signal.SIGCONT)
    settled(sidecar, prefilling=1, decoding=4)
    # Which of the two depends on how many tokens come in one read: those of a busy server come together, as bulk.
    left_out = [sidecar.value(name) or 0 for name in ("tap_dropped_total", "tap_skipped_bytes_total")]
    assert sum(left_out) > 0
    assert sidecar.value("requests_total", endpoint="chat_completions") == 108
    assert sidecar.value("requests_total", endpoint="chat_completions", outcome="ok") == 108
    assert sidecar.value("tap_repaired_streams_total") == 0
    assert not [freeze for freeze in freezes(sidecar) if freeze["worst_gap_seconds"] > 5]
    server.go_on.set()
    for reader in (*steady, waiting):
        reader.end()
    settled(sidecar, prefilling=0, decoding=0)
    assert sidecar.value("requests_total", endpoint="chat_completions") == 113


def test_the_next_observer_knows_who_waits_and_who_decodes(sidecar: Sidecar, server: ScriptedServer) -> None:
    steady = [Reader(sidecar.url, "steady 100000 0.02") for _ in range(3)]
    waiting = [Reader(sidecar.url, "wait 2 0.01") for _ in range(2)]
    eventually(lambda: gauges(sidecar) == {"prefilling_requests": 2, "decoding_streams": 3, "frozen_streams": 0})
    (observer,) = sidecar.pids("observer")
    os.kill(observer, signal.SIGKILL)
    eventually(lambda: _answers(sidecar) and sidecar.pids("observer") not in ([], [observer]))
    settled(sidecar, prefilling=2, decoding=3)
    assert (sidecar.value("oldest_first_token_wait_seconds") or 0) > 0
    server.go_on.set()
    for reader in (*steady, *waiting):
        reader.end()
    settled(sidecar, prefilling=0, decoding=0)
    assert sidecar.value("requests_total", endpoint="chat_completions", outcome="ok") == 5


def _answers(sidecar: Sidecar) -> bool:
    try:
        return "processes" in sidecar.state()
    except Exception:
        return False


def test_an_answer_without_a_line_end_costs_nobody_else(sidecar: Sidecar) -> None:
    steady = [Reader(sidecar.url, "tokens 300 0.02") for _ in range(4)]
    torrent = Reader(sidecar.url, f"bytes {96 * MIB // PIECE}")
    torrent.end()
    for reader in steady:
        reader.end()
    settled(sidecar, prefilling=0, decoding=0)
    assert sidecar.value("requests_total", endpoint="chat_completions", outcome="ok") == 5
    assert sidecar.value("generated_tokens_total") == 1200
    assert sidecar.value("tap_dropped_total") == 0
    assert (sidecar.value("tap_skipped_bytes_total") or 0) > 20 * MIB
    assert (sidecar.value("unparsed_events_total") or 0) >= 1
    assert sidecar.value("oldest_first_token_wait_seconds") is None


def test_the_streams_of_a_relay_that_died_are_closed(server: ScriptedServer, start: Callable[..., Any]) -> None:
    sidecar: Sidecar = start(Sidecar, "serve", "--upstream", server.url)
    for _ in range(3):
        Reader(sidecar.url, "tokens 100000 0.02")
    eventually(lambda: sidecar.value("decoding_streams") == 3)
    (relay,) = sidecar.pids("relay")
    os.kill(relay, signal.SIGKILL)
    settled(sidecar, prefilling=0, decoding=0)
    assert sidecar.value("relay_lost_streams_total") == 3
