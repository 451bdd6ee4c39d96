"""Which tests notice when a tunable moves by 30 %: python -m tests.sensitivity.noticed [GROUP.FIELD ...]

Runs the tests of the group with the default moved, and prints the files in which one fails. What is printed belongs
into the sheet (`prefillwatch.analysis.tuning`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from prefillwatch.analysis.tuning import sheet

#: Where the tests of a group are.
TESTS: Final = {
    "clock": ("analysis/steps/test_heartbeat.py",),
    "clear_steps": ("analysis/cost/test_clear_step.py", "analysis/steps/test_timeline.py"),
    "first_tokens": (
        "analysis/steps/test_open_steps.py",
        "analysis/steps/test_engine_reported.py",
        "analysis/steps/test_timeline.py",
        "analysis/test_reported_steps.py",
    ),
    "packing": (
        "analysis/steps/test_packing.py",
        "analysis/steps/test_open_steps.py",
        "analysis/steps/test_budget.py",
        "analysis/steps/test_timeline.py",
    ),
    "budget": ("analysis/steps/test_budget.py", "analysis/steps/test_timeline.py"),
    "timeline": ("analysis/steps/test_timeline.py",),
    "cost": ("analysis/cost", "analysis/steps/test_packing.py", "analysis/steps/test_budget.py"),
    "advice": ("analysis/cost/test_advice.py", "analysis/cost/test_costs.py"),
    "gaps": ("core/test_exchange.py", "core/test_books.py", "scenarios"),
    "baselines": ("analysis/tokens/test_baselines.py", "analysis/tokens/test_gaps.py"),
    "verdicts": ("analysis/verdicts", "scenarios"),
    "waits": ("analysis/verdicts/test_waits.py", "scenarios/test_waits.py"),
    "incidents": ("analysis/verdicts/test_incidents.py",),
}


def noticed(name: str, move: float) -> list[str]:
    """Files with a test that fails then."""
    tests = [f"tests/{each}" for each in TESTS[name.split(".")[0]]]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.sensitivity.moved", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PREFILLWATCH_MOVED": f"{name} {move}"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if result.returncode not in (0, 1):
        raise RuntimeError(result.stdout + result.stderr)
    return sorted(set(re.findall(r"^FAILED \S*?(\w+)\.py::", result.stdout, re.MULTILINE)))


def main(names: list[str]) -> None:
    jobs = [(each, move) for each in names or [each.name for each in sheet()] for move in (0.7, 1.3)]
    with ThreadPoolExecutor(1) as pool:
        for (name, move), files in zip(jobs, pool.map(lambda job: noticed(*job), jobs), strict=True):
            print(f"{name} x {move}: {', '.join(files) or 'nothing'}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
