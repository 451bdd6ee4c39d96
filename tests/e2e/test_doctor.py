"""`prefillwatch doctor` at a simulated server and at the sidecar in front of it, while a document freezes readers."""

from __future__ import annotations

import concurrent.futures
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from tests.e2e.processes import Command, Sidecar, Sim
from tests.e2e.traffic import readers

from prefillwatch.lab.load import Kind

DOCUMENT = Kind("document", (5500, 6500), (5, 10), per_second=1.0)
WATCH = "3s"


def doctor(*arguments: str) -> tuple[int, dict[str, Any]]:
    words = [sys.executable, "-m", "prefillwatch", "doctor", "--json", "-", "--watch", WATCH, *arguments]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_both_say_that_streams_pause_and_the_sidecar_says_why(start: Callable[..., Any]) -> None:
    sim: Sim = start(Sim, "--no-enable-chunked-prefill")
    sidecar: Sidecar = start(Sidecar, "serve", "--upstream", sim.url)
    with (
        readers(sidecar.url, 3, DOCUMENT),
        readers(sim.url, 6),  # those that go past the sidecar
        concurrent.futures.ThreadPoolExecutor() as both,
    ):
        ours, theirs = both.map(doctor, (sidecar.admin, sim.url))
    code, report = ours
    found = {finding["symptom"]: finding for finding in report["findings"] if finding["seen"] == "yes"}
    assert code == 1
    assert "To blame:" in found["streams_pause"]["words"]
    assert found["streams_pause"]["numbers"]["largest_culprit_tokens"] > 5000
    assert "past prefillwatch" in found["bypass"]["title"]
    code, report = theirs
    found = {finding["symptom"]: finding for finding in report["findings"] if finding["seen"] == "yes"}
    assert code == 1
    assert report["server"] == "vllm"
    assert found["streams_pause"]["cannot_be_known"] == "whether long prompts made these very gaps, and whose"


def test_a_server_that_is_not_there_is_one_line(start: Callable[..., Any]) -> None:
    command: Command = start(Command, "doctor", "127.0.0.1:1")
    assert command.wait() == 2
    assert command.output.startswith("prefillwatch: error: no answer from http://127.0.0.1:1/metrics (")
    assert len(command.output.splitlines()) == 1
