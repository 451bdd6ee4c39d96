"""Which test notices when a tunable moves by 30 %: python -m tests.sensitivity.noticed [GROUP.FIELD ...]

Runs the tests of the tunable's group with the default moved, each move in a forked process, and prints the file of the
first test that fails. What is printed belongs into the sheet (`prefillwatch.analysis.tuning`).
"""

from __future__ import annotations

import contextlib
import io
import itertools
import multiprocessing
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from prefillwatch.analysis.tuning import DEFAULT, sheet

MOVES: Final = (0.7, 1.3)
#: Where the tests of a group are.
TESTS: Final = {
    "clock": ("steps/test_heartbeat.py",),
    "clear_steps": ("cost/test_clear_step.py", "steps/test_open_steps.py"),
    "first_tokens": (
        "steps/test_open_steps.py",
        "steps/test_engine_reported.py",
        "test_reported_steps.py",
        "steps/test_timeline.py",
    ),
    "packing": ("steps/test_packing.py", "steps/test_open_steps.py", "steps/test_budget.py", "steps/test_timeline.py"),
    "budget": ("steps/test_budget.py", "steps/test_timeline.py"),
    "timeline": ("steps/test_timeline.py",),
    "cost": ("cost", "steps/test_packing.py", "steps/test_budget.py"),
    "pressure": ("pressure",),
    "advice": ("cost/test_advice.py", "cost/test_costs.py"),
    "gaps": (
        "../core/test_exchange.py",
        "../core/test_reading.py",
        "../core/test_books.py",
        "../core/test_relays.py",
        "tokens",
        "verdicts/test_stalls.py",
        "test_populations.py",
        "../scenarios/test_when_final.py",
        "../scenarios/test_frozen_now.py",
        "../scenarios/test_other_causes.py",
        "../scenarios/test_prefill.py",
    ),
    "flow": ("tokens/test_flow.py", "test_populations.py", "../scenarios/test_yardsticks.py"),
    "baselines": ("tokens/test_baselines.py", "tokens/test_gaps.py"),
    "verdicts": (
        "verdicts",
        "../scenarios/test_when_final.py",
        "../scenarios/test_other_causes.py",
        "../scenarios/test_prefill.py",
        "../scenarios/test_signals.py",
        "../scenarios/test_frozen_now.py",
        "../scenarios/test_bursts.py",
        "../scenarios/test_read_on.py",
        "test_reported_steps.py",
    ),
    "waits": ("verdicts/test_waits.py", "../scenarios/test_waits.py", "../scenarios/test_signals.py"),
    "incidents": ("verdicts/test_incidents.py",),
}


class _FirstFailure:
    """A plugin of pytest that remembers the file of the first test that failed."""

    found = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.found:
            self.found = Path(report.location[0]).stem


def noticed(job: tuple[str, float]) -> str:
    """The file of a test that fails then; nothing where none does. Tests build what they test with the default tuning,
    so it is the default that moves, in this process alone."""
    name, move = job
    group, each = name.split(".")
    object.__setattr__(getattr(DEFAULT, group), each, getattr(getattr(DEFAULT.moved(name, move), group), each))
    first = _FirstFailure()
    _run(["-x", *TESTS[group]], first)
    return first.found


def _run(arguments: Sequence[str], *plugins: object) -> None:
    paths = [each if each.startswith("-") else str(Path("tests/analysis") / each) for each in arguments]
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["-q", "-p", "no:cacheprovider", "--hypothesis-seed=1", *paths], plugins=list(plugins))


def main(names: list[str]) -> None:
    jobs = [(each, move) for each in names or [each.name for each in sheet()] for move in MOVES]
    _run(["--collect-only", *itertools.chain.from_iterable(TESTS.values())])  # so that all is imported before the fork
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        for (name, move), found in zip(jobs, pool.imap(noticed, jobs), strict=True):
            print(f"{name} x {move}: {found or 'nothing'}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
