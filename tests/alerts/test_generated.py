"""What is generated is what is in the tree, and a mistake in the source is told."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from alerts.generate import write_rules
from alerts.rulebook.documents import documents, filled
from alerts.rulebook.source import format_duration, load, parse_duration
from tests.alerts.shipped import ALERTS, ROOT, SOURCE, groups, rules

from prefillwatch.contract import limits


def test_generating_again_gives_the_same_bytes() -> None:
    generated = documents(SOURCE)
    for name, text in generated.items():
        assert (ALERTS / name).read_bytes() == text.encode(), f"alerts/{name}: run python -m alerts.generate"


def test_nothing_is_left_over_from_an_earlier_source() -> None:
    generated = {ALERTS / name for name in documents(SOURCE)}
    made = {path for folder in ("rules", "kubernetes", "upstream") for path in (ALERTS / folder).glob("*.y*ml")}
    assert made - generated == set()


def test_check_says_which_file_is_old(tmp_path: Path) -> None:
    other = tmp_path / "source.yml"
    other.write_text((ALERTS / "source.yml").read_text().replace("limits.KV_USAGE", "0.8"))
    command = [sys.executable, "-m", "alerts.generate", "--check"]
    current = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (current.returncode, current.stderr) == (0, "")
    old = subprocess.run([*command, "--source", str(other)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert old.returncode == 1
    assert "alerts/rules/replica.yml is not up to date" in old.stderr
    assert "fleet.yml" not in old.stderr


def test_the_kubernetes_resource_holds_the_same_rules() -> None:
    resource = yaml.safe_load((ALERTS / "kubernetes/prometheusrule.yaml").read_text())
    assert (resource["apiVersion"], resource["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    there = [rule for group in groups(ALERTS / "kubernetes/prometheusrule.yaml") for rule in group["rules"]]
    assert there == rules()


def test_scaled_rules_differ_in_their_times_alone(tmp_path: Path) -> None:
    paths = write_rules(SOURCE.scaled(1 / 15), tmp_path)
    scaled = {path.stem: groups(path) for path in paths}
    for stem, own in scaled.items():
        shipped = groups(ALERTS / "rules" / f"{stem}.yml")
        assert [rule.get("record") or rule["alert"] for group in own for rule in group["rules"]] == [
            rule.get("record") or rule["alert"] for group in shipped for rule in group["rules"]
        ]
        assert {group["interval"] for group in own} == {"1s"}
    (freeze,) = [r for g in scaled["replica"] for r in g["rules"] if r.get("alert") == "StreamFreeze"]
    assert freeze["for"] == "1s"
    assert "[4s]" in freeze["expr"]
    assert "> 5" in freeze["expr"]  # a threshold is no time of the rules


def test_every_name_follows_the_source(tmp_path: Path) -> None:
    """Ray Serve and KServe rename the engine's metrics; others rename jobs and labels."""
    names = {
        **SOURCE.raw["names"],
        "metric_prefix": "pw_",
        "vllm_prefix": "ray_vllm_",
        "job": "sidecars",
        "vllm_job": "engines",
        "replica_labels": ["node_name", "pod"],
    }
    (tmp_path / "source.yml").write_text(yaml.safe_dump({**SOURCE.raw, "names": names}))
    paths = write_rules(load(tmp_path / "source.yml"), tmp_path)
    found = [rule for path in paths for group in groups(path) for rule in group["rules"]]
    text = "\n".join(rule["expr"] + rule.get("annotations", {}).get("description", "") for rule in found)
    assert not re.search(r'prefillwatch_|vllm:|="prefillwatch"|="vllm"|\binstance\b|labels\.instance', text)
    assert 'ray_vllm_inter_token_latency_seconds_bucket{job="engines"}' in text
    assert "without (node_name, pod" in text


def test_unit_tests_are_written_filled_and_with_the_rules_that_they_test(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "alerts.generate", "--tests", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    written = sorted((tmp_path / "tests").iterdir())
    assert [path.name for path in written] == sorted(path.name for path in (ALERTS / "tests").iterdir())
    for path in written:
        text = path.read_text()
        assert "<<" not in text
        named = yaml.safe_load(text)["rule_files"]
        assert named
        assert all((path.parent / name).exists() for name in named)


@pytest.mark.parametrize(
    ("text", "seconds"), [("15s", 15.0), ("5m", 300.0), ("1h30m", 5400.0), ("3d", 259200.0), ("500ms", 0.5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "5", "5 m", "m", "1.5h", "5m later"])
def test_a_duration_that_cannot_be_read_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        parse_duration(text)


def test_a_window_that_holds_too_few_scrapes_is_told(tmp_path: Path) -> None:
    source = tmp_path / "source.yml"
    source.write_text((ALERTS / "source.yml").read_text().replace("scrape: 15s", "scrape: 2m"))
    with pytest.raises(ValueError, match=r"windows\.diagnosis \(5m\) is shorter than four scrapes \(2m\)"):
        load(source)


@pytest.mark.parametrize("value", ["limits.KV_USE", "limits.Final", "KV_USAGE", "0.9 of it"])
def test_a_limit_that_does_not_exist_is_told(tmp_path: Path, value: str) -> None:
    source = tmp_path / "source.yml"
    source.write_text((ALERTS / "source.yml").read_text().replace("limits.KV_USAGE", value))
    with pytest.raises(ValueError, match=rf"thresholds\.kv_usage is '{value}'; write a number, or limits\.NAME"):
        load(source)


def test_limits_of_the_contract_can_be_named_or_replaced(tmp_path: Path) -> None:
    assert SOURCE.threshold("kv_usage") == limits.KV_USAGE
    assert SOURCE.promises["ttft_p99"] == dict(limits.FIRST_TOKEN_PROMISES)
    source = tmp_path / "source.yml"
    source.write_text((ALERTS / "source.yml").read_text().replace("limits.KV_USAGE", "0.8"))
    assert load(source).threshold("kv_usage") == 0.8


def test_a_template_may_only_name_constants_that_exist() -> None:
    assert filled("for <<for.X>>", {"for.X": "1m"}) == "for 1m"
    with pytest.raises(KeyError, match=r"for\.Y"):
        filled("for <<for.Y>>", {"for.X": "1m"})
