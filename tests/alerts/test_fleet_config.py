"""The configuration of a shard keeps what the rules read: those of single replicas there, those of the fleet above."""

from __future__ import annotations

import re
from typing import Any

import promql_parser as promql
import pytest
import yaml
from tests.alerts.promql_labels import selectors
from tests.alerts.rule_lint import Rule
from tests.alerts.shipped import ALERTS, ROOT, SOURCE, groups

from prefillwatch.export.table import TABLE

CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "deploy/prometheus/prometheus-fleet.yml").read_text())
(JOB,) = CONFIG["scrape_configs"]
(REMOTE,) = CONFIG["remote_write"]
_QUERY = re.compile(r"printf `([^`]+)`")


def read_by(stem: str) -> list[Any]:
    """The selectors of all expressions in a rule file, those in descriptions included."""
    rules = rules_of(stem)
    asked = [query for rule in rules for query in _QUERY.findall(rule.get("annotations", {}).get("description", ""))]
    texts = [*(rule["expr"] for rule in rules), *(query.replace("%q", '"x"') for query in asked)]
    return [each for text in texts for each in selectors(promql.parse(text))]


def recorded_by(stem: str) -> set[str]:
    return {rule["record"] for rule in rules_of(stem) if "record" in rule}


def rules_of(stem: str) -> list[Rule]:
    return [rule for group in groups(ALERTS / f"rules/{stem}.yml") for rule in group["rules"]]


def dropped(selector: Any) -> bool:
    """Whether the scrape leaves out all that the selector could find."""
    values = {each.name: each.value for each in selector.matchers.matchers} | {"__name__": selector.name}
    for rule in JOB["metric_relabel_configs"]:
        assert rule["action"] == "drop"
        if re.fullmatch(rule["regex"], ";".join(values.get(label, "") for label in rule["source_labels"])):
            return True
    return False


def sent(name: str) -> bool:
    (keep,) = (rule for rule in REMOTE["write_relabel_configs"] if rule["action"] == "keep")
    return bool(keep["source_labels"] == ["__name__"] and re.fullmatch(keep["regex"], name))


@pytest.mark.parametrize("stem", ["replica", "fleet"])
def test_nothing_is_dropped_that_a_rule_reads(stem: str) -> None:
    assert [str(each) for each in read_by(stem) if dropped(each)] == []


def test_what_the_fleet_needs_is_sent_on() -> None:
    raw = {each.name for each in read_by("fleet")} - recorded_by("fleet")
    assert raw
    assert {name for name in raw if not sent(name)} == set()


def test_what_is_dropped_exists() -> None:
    """Else the rule that drops it would save nothing, and nobody would notice."""
    names = {spec.full_name: spec for spec in TABLE}
    windows = {f"{name};10s" for name, spec in names.items() if "window" in spec.label_names}
    samples = {f"{name}{suffix}" for name in names for suffix in ("", "_bucket", "_sum", "_count")}
    for rule in JOB["metric_relabel_configs"]:
        assert any(re.fullmatch(rule["regex"], each) for each in windows | samples), rule
        for name in re.findall(r"\(([a-z_|]+)\)_\(", rule["regex"]):
            assert {f"prefillwatch_{part}" for part in name.split("|")} <= set(names)


def test_the_shard_evaluates_replicas_under_the_name_that_they_have() -> None:
    assert CONFIG["rule_files"] == ["../../alerts/rules/replica.yml"]
    assert JOB["job_name"] == SOURCE.job
    assert CONFIG["global"]["scrape_interval"] == str(SOURCE.scrape)
