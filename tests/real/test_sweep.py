"""`prefillwatch sweep` of a real vLLM: a small budget, and chunked prefill off, each a start of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.real.engine import BASE_FLAGS, ENVIRONMENT, START_LIMIT_SECONDS, VENV

OFF = "--no-enable-chunked-prefill"
BUDGETS = (512,)
PROMPTS = 3
SERVER = (str(VENV / "bin" / "python"), "-m", "vllm.entrypoints.openai.api_server", *BASE_FLAGS)
# So brief that the starts of vLLM take most of the time: what is asserted here is no figure.
BRIEF = (
    *("--inject", str(PROMPTS), "--prompt-tokens", "2500", "--victims", "4", "--warmup", "1s", "--recovery", "1s"),
    *("--mix", "4s", "--mix-rate", "2", "--readers", "2"),
)


class Swept:
    """What a sweep left behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.report = self._sweep()
        self.results: dict[str, Any] = json.loads((folder / "sweep.json").read_text())
        self.rows: list[dict[str, Any]] = self.results["settings"]

    def _sweep(self) -> str:
        varied = f"max-num-batched-tokens={','.join(map(str, BUDGETS))}"
        files = ("--json", str(self.folder / "sweep.json"), "--html", str(self.folder / "sweep.html"))
        logs = ("--server-logs", str(self.folder), "--start-limit", f"{START_LIMIT_SECONDS:.0f}s")
        command = [sys.executable, "-m", "prefillwatch", "sweep", "--vary", varied, f"--setting={OFF}", *BRIEF, *files]
        done = subprocess.run(
            [*command, *logs, "--slo-itl-p99", "1h", "--", *SERVER],
            env=os.environ | ENVIRONMENT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    return Swept(tmp_path_factory.mktemp("sweep"))


def test_every_setting_was_measured(swept: Swept) -> None:
    assert [row["label"] for row in swept.rows] == [*(f"--max-num-batched-tokens {each}" for each in BUDGETS), OFF]
    assert [row["failure"] for row in swept.rows] == [None] * 2
    assert swept.results["model"] == "tiny"
    for row in swept.rows:
        (probe,) = row["probes"]
        assert probe["failures"] == []
        assert probe["overall"]["samples"] > probe["window"]["samples"] > 0
        assert probe["first_token"]["samples"] == PROMPTS
        assert row["mix"]["failed"] == 0
        assert row["mix"]["answered"] == row["mix"]["requests"] > 0
        assert row["mix"]["gaps"]["samples"] > 0
        assert row["mix"]["generated_tokens_per_second"] > 0


def test_every_server_ran_with_its_own_setting(swept: Swept) -> None:
    for number, row in enumerate(swept.rows, 1):
        log = (swept.folder / f"{number:02}.log").read_text()
        flag, *value = row["flags"]
        name = flag.removeprefix("--no-").removeprefix("--").replace("-", "_")
        assert f"'{name}': {value[0] if value else False}" in log


def test_a_smaller_budget_makes_more_steps_of_the_same_prompts(swept: Swept) -> None:
    """In the window each step gives each victim a token."""
    gaps = [row["probes"][0]["window"]["samples"] for row in swept.rows]
    assert gaps[0] > gaps[1]


def test_the_report_shows_the_front_and_keeps_a_promise_that_all_keep(swept: Swept) -> None:
    assert swept.results["pareto_front"]
    assert all(f"* {label}" in swept.report for label in swept.results["pareto_front"])
    assert "- Promised are gaps with a p99 of at most" in swept.report
    assert "keeps that" in swept.report
    assert (swept.folder / "sweep.html").read_text().count("<svg") == 2
