"""The rules on single waits, and which of them goes first."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from prefillwatch.analysis.verdicts.waits import WaitCase, judge
from prefillwatch.contract.causes import WAIT_CAUSES


def case(**facts: Any) -> WaitCase:
    """Ten seconds for a prompt that deserves a tenth of one."""
    return WaitCase(**({"waited": 10.0, "expected": 0.1} | facts))


BEHIND_LONG = {"tokens_ahead": 100_000, "long_tokens_ahead": 90_000, "ahead_possible": 20.0}
BEHIND_EQUALS = {"tokens_ahead": 100_000, "long_tokens_ahead": 10_000, "ahead_possible": 20.0}


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ({}, "unattributed"),
        (BEHIND_LONG, "prefill"),
        (BEHIND_LONG | {"ahead_possible": math.inf}, "prefill"),
        (BEHIND_LONG | {"ahead_possible": 2.0}, "unattributed"),
        (BEHIND_EQUALS, "queueing"),
        ({"young": True}, "warmup"),
        ({"young": True} | BEHIND_LONG, "prefill"),
        ({"young": True} | BEHIND_EQUALS, "warmup"),
        ({"overtaken": 30}, "stuck"),
        ({"overtaken": 30} | BEHIND_LONG, "stuck"),
        ({"overtaken": 10}, "stuck"),
        ({"overtaken": 9}, "unattributed"),
        ({"waited": 8.0, "silence": 5.0}, "stuck"),
        ({"waited": 8.0, "silence": 4.9}, "unattributed"),
        ({"silence": 9.0}, "stuck"),
        ({"silence": 9.0} | BEHIND_LONG, "prefill"),
        ({"silence": 1.0}, "unattributed"),
        ({"pages": 9, "pages_waiting": 8}, "queueing"),
        ({"pages": 9, "pages_waiting": 2}, "unattributed"),
        ({"pages": 9, "pages_missing": 8, "missing": 12}, "before_engine"),
        ({"pages": 9, "pages_missing": 8, "missing": 12} | BEHIND_LONG, "before_engine"),
        ({"pages": 9, "pages_missing": 1, "missing": 1} | BEHIND_LONG, "prefill"),
    ],
)
def test_rules(facts: dict[str, Any], cause: str) -> None:
    assert judge(case(**facts)) == cause
    assert cause in WAIT_CAUSES


def test_evidence_is_plain_json() -> None:
    evidence = case(**BEHIND_LONG | {"ahead_possible": math.inf}).evidence()
    assert json.loads(json.dumps(evidence, allow_nan=False)) == evidence


RUNS = {"pages": 10, "pages_running": 9}


def test_what_the_engine_runs_while_others_are_served_is_not_stuck() -> None:
    """A model that thinks unseen; without the page's word, or where nothing comes from the engine at all, it is."""
    assert judge(case(overtaken=12, silence=0.1, **RUNS)) == "unattributed"
    assert judge(case(overtaken=12, silence=0.1, pages=10, pages_running=4)) == "stuck"
    assert judge(case(silence=9.0, **RUNS)) == "stuck"
    assert judge(case(**BEHIND_LONG, **RUNS)) == "prefill"


def test_requests_that_wait_while_nothing_runs_are_stuck_and_not_in_line() -> None:
    idle = {"pages": 10, "pages_waiting": 10, "pages_idle": 10}
    assert judge(case(**idle)) == "stuck"
    assert judge(case(**idle | {"waited": 3.0})) == "queueing"
    assert judge(case(**idle | {"pages_idle": 2})) == "queueing"
    assert judge(case(**idle, **BEHIND_EQUALS)) == "queueing"
