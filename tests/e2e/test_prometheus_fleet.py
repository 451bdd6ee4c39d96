"""Many replicas behind one real Prometheus: that the rules hold for a fleet, at the size of a test."""

from __future__ import annotations

import subprocess
import sys

from tests.e2e.prometheus_stack import NEWEST, ROOT, fetch

REPLICAS = 30
MOST_SERIES = 1300  # 1,000 per model, and those of the sidecar itself


def test_a_small_fleet_is_scraped_and_evaluated() -> None:
    programs = fetch(NEWEST)
    script = [sys.executable, str(ROOT / "scripts/fleet.py")]
    options = ["--replicas", str(REPLICAS), "--seconds", "16", "--scrape", "4s", "--programs", str(programs.folder)]
    done = subprocess.run([*script, *options], capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    said = dict(line.split(maxsplit=1) if line[:6] != "series" else line.rsplit(maxsplit=1) for line in _lines(done))
    assert said["replicas"] == f"{REPLICAS} ({REPLICAS} scraped)"
    assert 0 < float(said["series per replica"]) < MOST_SERIES
    assert "0 rules" in done.stdout


def _lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stdout.splitlines() if line.startswith(("replicas", "series per replica"))]
