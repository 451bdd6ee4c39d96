"""The rules as promtool sees them: valid, and firing exactly when they should."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from alerts.generate import write
from alerts.rulebook.documents import rule_files, unit_tests
from tests.alerts.shipped import ALERTS, ROOT, SOURCE, alerts, recordings, rules

RULES = sorted((ALERTS / "rules").glob("*.yml"))
TESTS = unit_tests(SOURCE, ALERTS / "tests")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rules as they would be generated, and their unit tests."""
    found = tmp_path_factory.mktemp("alerts")
    write({**rule_files(SOURCE), **TESTS}, found)
    return found


def promtool(*arguments: str | Path, folder: Path = ROOT) -> str:
    """What it says; an error when it is not content."""
    done = subprocess.run(
        ["promtool", *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rules_are_valid() -> None:
    said = promtool("check", "rules", "--lint=all", "--lint-fatal", *RULES)
    assert f"{len(alerts()) + len(recordings())}" == str(sum(_counts(said)))


def _counts(said: str) -> list[int]:
    return [int(line.split()[1]) for line in said.splitlines() if "rules found" in line]


@pytest.mark.parametrize("name", TESTS)
def test_rules_fire_when_they_should_and_only_then(folder: Path, name: str) -> None:
    promtool("test", "rules", name, folder=folder)


def test_a_unit_test_that_should_fail_does(tmp_path: Path) -> None:
    """The harness notices: the same tests against rules that never fire."""
    never = {name: text.replace("> 5\n", "> 5000\n") for name, text in rule_files(SOURCE).items()}
    write({**never, **TESTS}, tmp_path)
    command = ["promtool", "test", "rules", "tests/stalls.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "StreamFreeze" in done.stdout + done.stderr


def test_every_alert_is_seen_firing_in_some_unit_test() -> None:
    fired = set()
    for test in _tests():
        fired |= {case["alertname"] for case in test.get("alert_rule_test", ()) if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in alerts()}


def test_every_recorded_series_is_computed_in_some_unit_test() -> None:
    """By itself, or as a part of an alert or of another one."""
    expressions = [case["expr"] for test in _tests() for case in test.get("promql_expr_test", ())]
    used = "\n".join([*expressions, *(rule["expr"] for rule in rules())])
    assert [rule["record"] for rule in recordings() if rule["record"] not in used] == []


def _tests() -> list[dict[str, Any]]:
    return [test for text in TESTS.values() for test in yaml.safe_load(text)["tests"]]


@pytest.mark.parametrize("path", sorted((ROOT / "deploy/prometheus").glob("*.yml")), ids=lambda path: path.stem)
def test_configurations_are_valid(path: Path) -> None:
    promtool("check", "config", path)
