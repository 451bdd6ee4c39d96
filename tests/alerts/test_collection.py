"""The section for the public collection of rules: each stands alone, and fires when ours does and only then."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from alerts.generate import write
from alerts.rulebook.collection import CHOSEN, section
from alerts.rulebook.documents import rule_files
from tests.alerts.shipped import SOURCE, recordings
from tests.alerts.test_promtool import TESTS, promtool

(SERVICE,) = yaml.safe_load(section(SOURCE))["services"]
RULES = SERVICE["exporters"][0]["rules"]


def test_there_is_one_for_each_that_was_chosen() -> None:
    assert {rule["name"] for rule in RULES} == set(CHOSEN.values())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["name"])
def test_a_query_is_one_line_over_our_own_series_alone(rule: dict[str, str]) -> None:
    assert "\n" not in rule["query"]
    assert not any(recorded["record"] in rule["query"] for recorded in recordings())
    assert "job=" not in rule["query"]
    assert rule["severity"] in ("info", "warning", "critical")
    assert not re.search(r"[{}]", rule["description"])


def cases(text: str) -> dict[str, Any]:
    """A file of unit tests with those alone that are of these alerts."""
    tests = yaml.safe_load(text)
    of_ours = [
        {**test, "alert_rule_test": mine}
        for test in tests["tests"]
        if (mine := [case for case in test.get("alert_rule_test", ()) if case["alertname"] in CHOSEN])
    ]
    for test in of_ours:
        test.pop("promql_expr_test", None)
    return {**tests, "tests": of_ours}


CASES = {name: found for name, text in TESTS.items() if (found := cases(text))["tests"]}


@pytest.mark.parametrize("name", CASES)
def test_they_fire_when_ours_do(name: str, tmp_path: Path) -> None:
    """Our own rules, with these queries in the place of theirs, through our own unit tests."""
    queries: dict[str, list[str]] = {}
    for rule in RULES:
        queries.setdefault(rule["name"], []).append(rule["query"])
    files = {}
    for path, text in rule_files(SOURCE).items():
        groups = yaml.safe_load(text)["groups"]
        kept = [rule for group in groups for rule in group["rules"] if rule.get("alert") in CHOSEN]
        for rule in kept:
            rule["expr"] = queries[CHOSEN[rule["alert"]]].pop(0)
        files[path] = yaml.safe_dump({"groups": [{"name": "alone", "interval": "15s", "rules": kept}]})
    write({**files, name: yaml.safe_dump(CASES[name])}, tmp_path)
    promtool("test", "rules", name, folder=tmp_path)


def test_every_one_is_seen_firing() -> None:
    tests = [case for found in CASES.values() for test in found["tests"] for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in tests if case["exp_alerts"]} == set(CHOSEN)
