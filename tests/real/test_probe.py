"""`prefillwatch probe` with three doses against a real vLLM: lengths are exact, and longer prompts are more work."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from tests.real.engine import Engine

SIZES = (400, 1200, 3600)
OPTIONS = ("--prompt-tokens", ",".join(map(str, SIZES)), "--repeats", "1", "--warmup", "2s", "--recovery", "2s")


@pytest.fixture(scope="module")
def probed(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], str]:
    """What was shown, the figures, and the page."""
    folder = tmp_path_factory.mktemp("probe")
    files = ("--json", str(folder / "probe.json"), "--html", str(folder / "probe.html"))
    command = [sys.executable, "-m", "prefillwatch", "probe", "--url", engine.url, *OPTIONS, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads((folder / "probe.json").read_text()), (folder / "probe.html").read_text()


def test_prompts_have_exactly_the_tokens_asked_for_and_none_is_cached(probed: tuple[str, dict[str, Any], str]) -> None:
    _, figures, _ = probed
    assert figures["prompt_lengths_by"] == "tokenize"
    assert [dose["prompt_tokens"] for dose in figures["doses"]] == list(SIZES)
    for dose in figures["doses"]:
        for prompt in dose["prompts"]:
            assert prompt["prompt_tokens"] == dose["prompt_tokens"], "by the usage in vLLM's answer"
            assert (prompt["cached_tokens"] or 0) < 32, "the chat template may be, the text is not"
            assert prompt["ttft_seconds"] > 0


def test_a_longer_prompt_is_more_work_and_freezes_the_victims(probed: tuple[str, dict[str, Any], str]) -> None:
    report, figures, page = probed
    work = [point["work_seconds"] for point in figures["response"]["points"]]
    assert work == sorted(work)
    assert figures["response"]["cost"]["token_seconds"] > 0
    assert figures["stalled_victims"] == 6
    assert figures["window"]["p99_seconds"] > figures["overall"]["p50_seconds"]
    assert figures["verdict"]["effect"] == "freezes"
    assert "This model on this machine shows the effect" in report
    assert page.count("<svg ") == 3
