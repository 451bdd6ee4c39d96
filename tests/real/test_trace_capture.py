"""`prefillwatch trace --capture` on a real vLLM: its profiler armed, its trace found and read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.real.engine import Engine

VICTIMS = 3
PROMPT_TOKENS = 2500


@pytest.fixture(scope="module")
def captured(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], Path]:
    """What the command said, the figures it wrote, and the folder with its pictures."""
    folder = tmp_path_factory.mktemp("captured")
    command = [sys.executable, "-m", "prefillwatch", "trace", "--capture", engine.url]
    command += ["--trace-dir", str(engine.log_dir / "traces"), "--victims", str(VICTIMS), "--json", "figures.json"]
    command += ["--prompt-tokens", str(PROMPT_TOKENS), "--steps-before", "5", "--steps-after", "8"]
    command += ["--annotate", "annotated.json.gz", "--png", "heartbeat.png", "--max-time", "60s"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return run.stdout, json.loads((folder / "figures.json").read_text()), folder


def test_every_step_that_vllm_annotated_is_found_by_its_kernels(captured: tuple[str, dict[str, Any], Path]) -> None:
    cadence = captured[1]["cadence"]
    assert cadence["cut_by"] == "token choice"
    assert cadence["steps"] >= 5 + 1 + 8
    assert cadence["agreeing_steps"] == cadence["annotated_steps"]
    assert captured[1]["layers"]["full_attention"] == 6


def test_the_prompt_is_in_the_trace_with_all_its_tokens(captured: tuple[str, dict[str, Any], Path]) -> None:
    figures = captured[1]
    main = figures["prefills"][figures["main_prefill"]]
    assert main["prompt_tokens"] == figures["clients"]["prompt_tokens"] == PROMPT_TOKENS


def test_the_steps_that_carried_it_took_far_longer(captured: tuple[str, dict[str, Any], Path]) -> None:
    cadence = captured[1]["cadence"]
    assert cadence["during"]["median_seconds"] > 3 * cadence["before"]["median_seconds"]
    assert "times as long" in captured[0]


def test_all_victims_rode_in_each_step(captured: tuple[str, dict[str, Any], Path]) -> None:
    carrying = [step for step in captured[1]["steps"] if step["prefill"]]
    assert carrying
    assert {step["answers"] for step in carrying} == {VICTIMS}


def test_picture_and_annotated_trace_are_there(captured: tuple[str, dict[str, Any], Path]) -> None:
    folder = captured[2]
    assert (folder / "heartbeat.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "annotated.json.gz").stat().st_size > 10_000
