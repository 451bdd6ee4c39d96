"""The shipped rules have none of the defects that published rule sets repeat; and the lint sees each of them."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import promql_parser as promql
import pytest
from tests.alerts.promql_labels import labels_of
from tests.alerts.rule_lint import Rule, problems
from tests.alerts.shipped import alerts, described, recordings, rules, world

WORLD = world()
LEVEL_LABELS = ("concurrent_prompt", "prompt_bucket", "model_name", "model", "cause")


@pytest.mark.parametrize("rule", rules(), ids=described)
def test_no_rule_has_a_known_defect(rule: Rule) -> None:
    assert problems(rule, WORLD) == []


def test_no_rule_is_there_twice() -> None:
    records = Counter(rule["record"] for rule in recordings())
    assert [name for name, count in records.items() if count > 1] == []
    identities = Counter(described(rule) for rule in alerts())
    assert [name for name, count in identities.items() if count > 1] == []
    expressions = Counter(rule["expr"] for rule in rules())
    assert [text for text, count in expressions.items() if count > 1] == []


@pytest.mark.parametrize("rule", recordings(), ids=described)
def test_a_recorded_name_says_at_which_level_it_is(rule: Rule) -> None:
    """level:metric:operations, where the level is the labels that are left."""
    level, metric, operations = rule["record"].split(":")
    labels = labels_of(promql.parse(rule["expr"]), WORLD.labels()) or frozenset()
    named, rest = set(), level
    for label in LEVEL_LABELS:
        if re.search(rf"(^|_){label}($|_)", rest):
            named.add(label)
            rest = rest.replace(label, "").strip("_").replace("__", "_")
    assert rest in ("instance", "job"), f"{level} begins with neither level"
    targets = {"instance": {"instance", "job"}, "job": {"job"}}[rest]
    assert labels - {"le"} == targets | named
    assert not metric.endswith(("_total", "_sum", "_count"))
    assert operations


def test_every_recorded_series_is_used_by_an_alert_or_meant_for_people() -> None:
    """At the level of a replica each one costs a series per replica: the ones for people are named here."""
    for_people = {"p50", "p99", "deadline_misses_per_deadlines"}
    used = "\n".join(rule["expr"] for rule in rules())
    unused = [rule["record"] for rule in recordings() if rule["record"] not in used]
    replica = [name for name in unused if name.startswith("instance")]
    assert [name for name in replica if not any(word in name for word in for_people)] == []


# --- The lint itself ---

GOOD: dict[str, Any] = {
    "alert": "TooSlow",
    "expr": "prefillwatch_open_gap_seconds > 5",
    "for": "1m",
    "keep_firing_for": "1m",
    "labels": {"severity": "warning"},
    "annotations": {
        "summary": "It is too slow.",
        "description": "{{ $labels.model }} on {{ $labels.instance }}",
        "runbook_url": "https://wiki.corp/TooSlow.md",
    },
}

BAD_EXPRESSIONS = [
    ("prefillwatch_open_gap_seconds >", "does not parse"),
    # Metrics that do not exist, or no longer.
    ("vllm:gpu_cache_usage_perc > 0.9", "no such series"),
    ("prefillwatch_gpu_memory_usage > 90", "no such series"),
    ("histogram_quantile(0.99, rate(vllm:time_per_output_token_seconds_bucket[5m])) > 0.2", "no such series"),
    ("kserve_vllm:inter_token_latency_seconds_count > 0", "no such series"),
    ("rate(vllm:request_failure_total[5m]) > 0", "no such series"),
    ("rate(prefillwatch_inter_token_latency_seconds[5m]) > 0", "no such series"),
    # A percentage where a share is meant.
    ("prefillwatch_kv_cache_usage_ratio > 90", "a share compared with 90"),
    ("avg_over_time(prefillwatch_kv_cache_usage_ratio[5m]) > 90", "a share compared with 90"),
    ("max by (job, instance) (prefillwatch_kv_cache_usage_ratio) > 90", "a share compared with 90"),
    # A budget of two counters that move together, and a mean where users feel the tail.
    (
        "sum(rate(prefillwatch_requests_total[5m])) / (sum(rate(prefillwatch_requests_total[5m])) > 0) < 0.99",
        "both sides of a division read the same",
    ),
    (
        "rate(prefillwatch_queue_seconds_sum[5m]) / (rate(prefillwatch_queue_seconds_count[5m]) > 0) > 10",
        "the mean of prefillwatch_queue_seconds",
    ),
    # Labels and values that do not exist.
    ('rate(prefillwatch_requests_total{finish_reason="stop"}[5m]) > 0', "has no label finish_reason"),
    ('rate(prefillwatch_requests_total{outcome="success"}[5m]) > 0', "never has outcome"),
    ('rate(prefillwatch_inter_token_latency_seconds_bucket{le="0.25"}[5m]) > 0', "never has le"),
    ('prefillwatch_open_gap_seconds{model=~"m"} > 5', "needs no regular expression"),
    # Histograms.
    ("histogram_quantile(0.99, prefillwatch_inter_token_latency_seconds_bucket) > 1", "without rate()"),
    (
        "histogram_quantile(0.99, sum by (model) (rate(prefillwatch_inter_token_latency_seconds_bucket[5m]))) > 1",
        "without le",
    ),
    ("avg(prefillwatch_inter_token_latency_p99_seconds) > 1", "average or sum of quantiles"),
    # Counters and gauges mixed up.
    ("prefillwatch_preemptions_total > 0", "without rate()"),
    ("rate(prefillwatch_kv_cache_usage_ratio[5m]) > 0", "of the gauge"),
    ("max_over_time(prefillwatch_preemptions_total[5m]) > 0", "of the counter"),
    ("rate(prefillwatch_preemptions_total[15s]) > 0", "shorter than four scrapes"),
    # Sides that never meet.
    ("rate(prefillwatch_stalls_total[5m]) / (rate(prefillwatch_token_deadlines_total[5m]) > 0) > 1", "never match"),
    ("prefillwatch_open_gap_seconds > 5 and prefillwatch_kv_cache_usage_ratio > 0.9", "never match"),
    ("prefillwatch_open_gap_seconds > on (engine) prefillwatch_kv_cache_usage_ratio", "never match"),
    # Divisions by nothing.
    ("prefillwatch_frozen_streams / prefillwatch_decoding_streams > 0.5", "can be 0"),
    # Alerts that fire for anything, or flap.
    ("prefillwatch_open_gap_seconds", "no comparison"),
    ("prefillwatch_open_gap_seconds > 5 or prefillwatch_frozen_streams", "a part of it has no comparison"),
    ("topk(3, prefillwatch_open_gap_seconds) > 5", "topk in an alert"),
]


@pytest.mark.parametrize(("expression", "problem"), BAD_EXPRESSIONS)
def test_a_defect_in_an_expression_is_seen(expression: str, problem: str) -> None:
    found = problems({**GOOD, "expr": expression}, WORLD)
    assert any(problem in each for each in found), found


def test_a_good_alert_has_no_problem() -> None:
    assert problems(GOOD, WORLD) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"alert": "too_slow"}, "not CamelCase"),
        ({"for": "0m"}, "single evaluation"),
        ({"keep_firing_for": "0s"}, "gap in scraping"),
        ({"labels": {"severity": "page"}}, "severity 'page'"),
        ({"labels": {"severity": "warning", "value": "{{ $value }}"}}, "the label value has a template"),
        ({"annotations": {**GOOD["annotations"], "summary": "{{ $labels.model }} is slow."}}, "no plain sentence"),
        ({"annotations": {"summary": "It is too slow."}}, "no runbook_url"),
        ({"annotations": {**GOOD["annotations"], "runbook_url": "runbooks/TooSlow.md"}}, "is no address"),
        (
            {"annotations": {**GOOD["annotations"], "runbook_url": "https://books.example/TooSlow.md"}},
            "leads nowhere",
        ),
        ({"annotations": {**GOOD["annotations"], "runbook_url": "http://localhost:8000/TooSlow.md"}}, "leads nowhere"),
        ({"annotations": {**GOOD["annotations"], "description": "{{ $labels.pod }}"}}, "names the label pod"),
        (
            {"annotations": {**GOOD["annotations"], "description": "{{ with query (printf `gone{model=%q}` 1) }}"}},
            "asks for gone",
        ),
        ({"expr": 'absent(up{job="prefillwatch"})', "for": "15s"}, "two scrapes"),
        ({"expr": "sum without (model) (prefillwatch_open_gap_seconds) > 5"}, "names the label model"),
    ],
)
def test_a_defect_in_an_alert_is_seen(change: Rule, problem: str) -> None:
    found = problems({**GOOD, **change}, WORLD)
    assert any(problem in each for each in found), found
