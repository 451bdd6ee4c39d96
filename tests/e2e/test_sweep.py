"""`prefillwatch sweep` against the simulated 4B model: the published table and its trap, in time as it passes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

OFF = "--no-enable-chunked-prefill"
LIMIT_SECONDS = 120


def sweep(folder: Path, inject: int, *options: str) -> subprocess.Popen[str]:
    settings = ("--setting", "", f"--setting={OFF}", "--inject", str(inject), "--json", str(folder / f"{inject}.json"))
    command = [sys.executable, "-m", "prefillwatch", "sweep", *settings, *options]
    simulator = ["--", "prefillwatch", "sim", "--preset", "article"]
    return subprocess.Popen([*command, *simulator], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[str, dict[str, Any]]]:
    """Of three and of twelve prompts at once; both sweeps run at the same time, since simulated servers hardly work."""
    folder = tmp_path_factory.mktemp("sweep")
    running = {
        3: sweep(folder, 3, "--mix", "0", "--recovery", "5s"),
        12: sweep(folder, 12, "--warmup", "1s", "--recovery", "2s", "--mix", "3s", "--slo-itl-p99", "600ms"),
    }
    try:
        said = {inject: process.communicate(timeout=LIMIT_SECONDS)[0] for inject, process in running.items()}
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    assert [process.returncode for process in running.values()] == [0, 0]
    return {
        inject: (" ".join(said[inject].split()), json.loads((folder / f"{inject}.json").read_text())) for inject in said
    }


def p99(results: dict[str, Any], row: int, population: str) -> float:
    return float(results["settings"][row]["probes"][0][population]["p99_seconds"])


def test_twelve_prompts_freeze_others_for_less_than_half_as_long_in_chunks(
    reports: dict[int, tuple[str, dict[str, Any]]],
) -> None:
    said, results = reports[12]
    assert "With 12 prompts at once: the command as given is better for the victims, by both populations" in said
    for population in ("overall", "window"):
        assert p99(results, 0, population) < p99(results, 1, population) / 1.5


def test_three_prompts_flip_the_sign_with_the_population(reports: dict[int, tuple[str, dict[str, Any]]]) -> None:
    said, results = reports[3]
    assert "With 3 prompts at once: The sign flips with the population" in said
    assert f"By all tokens {OFF} looks better, and it is not" in said
    assert p99(results, 0, "overall") > p99(results, 1, "overall")
    assert p99(results, 0, "window") < p99(results, 1, "window")


def test_the_promise_names_chunked_prefill_and_its_price(reports: dict[int, tuple[str, dict[str, Any]]]) -> None:
    said, _ = reports[12]
    assert "at most 600 ms in the injection window: the command as given keeps that" in said
    assert "The command as given costs, against the best of the others: first tokens after" in said
    assert f"with {OFF}" in said
