"""What `/readyz` says while upstream is slow, odd, ill or gone, and while processes of ours stand still."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from tests.e2e.processes import Sidecar, Sim, Stream
from tests.e2e.scripted_server import ScriptedServer
from tests.kit.eventually import eventually


@pytest.fixture
def upstream() -> Iterator[ScriptedServer]:
    with contextlib.closing(ScriptedServer()) as upstream:
        yield upstream


def readiness_for(sidecar: Sidecar, seconds: float) -> set[int]:
    """All that it says in this time."""
    said, end = set(), time.monotonic() + seconds
    while time.monotonic() < end:
        said.add(sidecar.readiness())
        time.sleep(0.1)
    return said


def reason(sidecar: Sidecar) -> str:
    return str(httpx.get(f"{sidecar.admin}/readyz").json().get("reason", ""))


def test_late_checks_do_not_count_while_tokens_arrive(upstream: ScriptedServer, start: Callable[..., Sidecar]) -> None:
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
        upstream.go_on.set()  # ends the answer
        reader.join(20)
        assert not reader.is_alive()


def test_every_second_check_lost_does_not_make_it_flap(upstream: ScriptedServer, start: Callable[..., Sidecar]) -> None:
    upstream.health = itertools.cycle(["ok", "lost"])
    sidecar = start(Sidecar, "serve", "--upstream", upstream.url, "--scrape-interval", "200ms")
    before = upstream.checks
    assert readiness_for(sidecar, 4) == {200}
    assert upstream.checks >= before + 6


def test_an_upstream_that_is_gone_is_told_and_so_is_its_return(
    upstream: ScriptedServer, start: Callable[..., Sidecar]
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
