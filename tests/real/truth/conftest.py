"""All scenarios are played once for the whole suite; their confusion matrix is printed after the tests."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.real.engine import ROOT, Engine
from tests.real.truth.live import Scenario
from tests.real.truth.outcome import Outcome, judge, report_json, report_text
from tests.real.truth.scenarios import BY_NAME, chosen
from tests.real.truth.suite import own_engine, play_all

#: Recordings, what was said, and the report; judge them again with `python -m tests.real.truth --again`.
OUT = Path(os.environ.get("PWTEST_TRUTH_DIR", ROOT / ".cache" / "truth"))
REPORT = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def outcomes(engine: Engine, request: pytest.FixtureRequest) -> dict[str, Outcome]:
    def servers(flags: tuple[str, ...]) -> AbstractContextManager[Engine]:
        return own_engine(flags) if flags else contextlib.nullcontext(engine)

    judged: list[Outcome] = []
    for take in play_all(asked_for(request.session.items), servers, OUT):
        judged.append(judge(BY_NAME[take.scenario], take.recording, judged))
    (OUT / "report.json").write_text(json.dumps(report_json(judged), indent=1))
    request.config.stash[REPORT] = report_text(judged)
    return {outcome.scenario.name: outcome for outcome in judged}


def asked_for(items: Iterable[pytest.Item]) -> list[Scenario]:
    """The scenarios that these tests look at: a test that names one looks at no other, and the rest look at all."""
    tests = [item for item in items if isinstance(item, pytest.Function) and "outcomes" in item.fixturenames]
    named = {item.callspec.params["name"] if hasattr(item, "callspec") else None for item in tests}
    return [scenario for scenario in chosen() if None in named or scenario.name in named]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if report := config.stash.get(REPORT, ""):
        terminalreporter.section("verdicts against the engine's step log: stall seconds, true causes in rows")
        terminalreporter.write_line(report)
        terminalreporter.write_line(f"as JSON with all incidents: {OUT / 'report.json'}")
