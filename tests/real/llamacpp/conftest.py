"""One llama.cpp server and one sidecar before it; all scenarios are played once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.real.client import ask
from tests.real.engine import ROOT
from tests.real.llamacpp.scenarios import SCENARIOS
from tests.real.llamacpp.server import LlamaServer
from tests.real.record_workload import Session
from tests.real.served import CHAT
from tests.real.sidecar import Sidecar
from tests.real.truth.live import play
from tests.real.truth.outcome import Outcome, judge, report_json, report_text

OUT = Path(os.environ.get("PWTEST_TRUTH_DIR", ROOT / ".cache" / "truth"))
REPORT = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    with LlamaServer(tmp_path_factory.mktemp("llamacpp")) as server:
        asyncio.run(warm_up(server))
        yield server


@pytest.fixture(scope="session")
def llama_sidecar(llama: LlamaServer) -> Iterator[Sidecar]:
    OUT.mkdir(parents=True, exist_ok=True)
    with Sidecar(OUT / "llamacpp.serve.log", ("serve", f"--upstream={llama.url}")) as sidecar:
        asyncio.run(show_that_it_closes(sidecar))
        yield sidecar


async def show_that_it_closes(sidecar: Sidecar) -> None:
    """The server closes after each stream and does not say so, which the sidecar has to see before it keeps no more: a
    quick request before would meet the close, and be a 502."""
    body = {"messages": [{"role": "user", "content": "self"}], "max_tokens": 2, "stream": True, "model": "tiny"}
    for _ in range(3):
        await ask(sidecar.port, CHAT, body)
        await asyncio.sleep(0.6)


@pytest.fixture(scope="session")
def played(llama: LlamaServer, llama_sidecar: Sidecar, request: pytest.FixtureRequest) -> dict[str, Outcome]:
    judged: list[Outcome] = []
    for scenario in SCENARIOS:
        take = play(scenario, llama, llama_sidecar, None, OUT)
        judged.append(judge(scenario, take.recording, judged))
    (OUT / "llamacpp.json").write_text(json.dumps(report_json(judged), indent=1))
    request.config.stash[REPORT] = report_text(judged)
    return {outcome.scenario.name: outcome for outcome in judged}


async def warm_up(server: LlamaServer) -> None:
    session = Session(server, seed=1)
    await session.send("warm", "warm", session.text(600), 20)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if report := config.stash.get(REPORT, ""):
        terminalreporter.section("verdicts against llama-server's log: stall seconds, true causes in rows")
        terminalreporter.write_line(report)
