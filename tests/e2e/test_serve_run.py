"""`prefillwatch run`: the simulated server as the command."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import httpx
import pytest
from tests.e2e.processes import Command, Sidecar, Stream, is_alive
from tests.kit.eventually import eventually

SIM = (sys.executable, "-m", "prefillwatch", "sim")
Run = Callable[..., Sidecar]


@pytest.fixture
def run(start: Callable[..., Sidecar]) -> Run:
    return lambda *arguments, **more: start(Sidecar, "run", *arguments, **more)


def test_the_server_gets_a_loopback_port_and_readiness_follows_it(run: Run) -> None:
    sidecar = run("--", *SIM)
    assert "simulated vLLM (article) serves sim-4b at http://127.0.0.1:" in sidecar.output
    assert Stream(sidecar.url, tokens=5).end().done
    (server,) = sidecar.pids("upstream")
    os.kill(server, signal.SIGSTOP)
    eventually(lambda: sidecar.readiness() == 503)
    os.kill(server, signal.SIGCONT)
    eventually(lambda: sidecar.readiness() == 200)
    assert sidecar.stop() == 0
    assert not is_alive(server)


def test_running_answers_end_before_the_server_is_told_to(run: Run) -> None:
    sidecar = run("--", *SIM)
    stream = Stream(sidecar.url, tokens=80).begin()
    sidecar.send(signal.SIGINT)
    assert stream.end().done
    assert sidecar.wait() == 0


def test_a_server_that_dies_ends_it_with_its_code(run: Run) -> None:
    sidecar = run("--", *SIM)
    stream = Stream(sidecar.url, tokens=2000).begin()
    os.kill(sidecar.pids("upstream")[0], signal.SIGKILL)
    assert not stream.end().done
    assert sidecar.wait() == 128 + signal.SIGKILL
    assert "was killed by SIGKILL; prefillwatch ends with it" in sidecar.output


def test_a_server_that_fails_at_its_start_ends_it_with_its_code_and_words(run: Run) -> None:
    sidecar = run("--", *SIM, "--max-num-seqs", "0", ready=False)
    assert sidecar.wait() == 2
    assert "Invalid value for '--max-num-seqs'" in sidecar.output


def test_a_command_with_a_placeholder(run: Run) -> None:
    sidecar = run("--", "sh", "-c", f"exec {' '.join(SIM)} --listen 127.0.0.1:{{port}}")
    assert httpx.get(f"{sidecar.url}/health").status_code == 200


def test_a_command_that_is_not_there() -> None:
    command = Command("run", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--", "no-such-server", "--port", "9")
    try:
        assert command.wait() == 127
        assert command.output.startswith(
            "prefillwatch: error: cannot start 'no-such-server': No such file or directory"
        )
        assert command.output.count("\n") == 1
    finally:
        command.kill()
