"""The shipped rule files, read back as Prometheus would read them, and what they may refer to."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml
from alerts.rulebook.source import load
from tests.alerts.promql_labels import Labels, labels_of
from tests.alerts.rule_lint import TARGET_LABELS, Rule, World

from prefillwatch.export.table import TABLE

ROOT = Path(__file__).parent.parent.parent
ALERTS = ROOT / "alerts"
SOURCE = load()

#: The engine's metrics that rules use, as a vLLM of today names them.
ENGINE_SERIES: dict[str, Labels] = {
    SOURCE.vllm_metric("inter_token_latency_seconds_bucket"): TARGET_LABELS | {"model_name", "engine", "le"},
}


def groups(path: Path) -> list[dict[str, Any]]:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = document.get("spec", document)["groups"]
    return found


def rules() -> list[Rule]:
    files = sorted((ALERTS / "rules").glob("*.yml"), key=lambda path: path.stem != "replica")
    return [rule for path in files for group in groups(path) for rule in group["rules"]]


def alerts() -> list[Rule]:
    return [rule for rule in rules() if "alert" in rule]


def recordings() -> list[Rule]:
    return [rule for rule in rules() if "record" in rule]


def by_name(found: list[Rule]) -> list[tuple[str, list[Rule]]]:
    found = sorted(found, key=lambda rule: rule["alert"])
    return [(name, list(same)) for name, same in itertools.groupby(found, key=lambda rule: rule["alert"])]


def world() -> World:
    """Recorded series get their labels from the rules that make them, in the order in which they are made."""
    specs = {spec.full_name: spec for spec in TABLE}
    built = World(specs, {"up": TARGET_LABELS, **ENGINE_SERIES}, SOURCE.scrape.seconds)
    for rule in recordings():
        labels = labels_of(promql.parse(rule["expr"]), built.labels())
        built.series[rule["record"]] = labels or frozenset()
    return built


def described(rule: Rule) -> str:
    """Names a rule in the list of tests."""
    extra = "-".join(str(value) for key, value in rule.get("labels", {}).items() if key != "severity")
    return rule.get("record") or "-".join(filter(None, (rule["alert"], extra)))
