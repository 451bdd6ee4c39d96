"""The table of metrics: names, labels and bounds that users and dashboards rely on."""

from __future__ import annotations

import math

import pytest

from prefillwatch.contract.buckets import STEP_BUCKETS, STEP_EDGES
from prefillwatch.export import table
from prefillwatch.export.spec import Kind, Label, Spec, window_name

# What vLLM uses for its own gaps between tokens, so that both can be laid over each other.
VLLM_GAP_EDGES = {
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
}

PROMISED = """
inter_token_latency_seconds model concurrent_prompt
inter_token_latency_p50_seconds model window population
inter_token_latency_p99_seconds model window population
inter_token_latency_max_seconds model window population
time_per_output_token_seconds model
time_to_first_token_seconds model prompt_bucket
time_to_first_token_p99_seconds model window prompt_bucket
queue_seconds model prompt_bucket
prefill_seconds model prompt_bucket
step_seconds model step_prefill_tokens
prompt_length_tokens model
prompt_length_max_tokens model window
prompt_tokens_total model
cached_prompt_tokens_total model
generated_tokens_total model
tokens_per_event model
coalesced_tokens_total model
stalls_total model cause
stall_seconds_total model cause
prefill_blame_seconds_total model prompt_bucket
freezes_total model cause
freeze_seconds_total model cause
waits_total model cause
interference_ratio model window
prompt_itl_correlation_ratio model window
prefill_cost_seconds_per_token model
prefill_cost_fit_ratio model
advised_max_batched_tokens model
decoding_streams model
prefilling_requests model
prefilling_tokens model
frozen_streams model
open_gap_seconds model
oldest_first_token_wait_seconds model
requests_total model endpoint outcome
token_deadlines_total model
token_deadline_misses_total model
requests_within_slo_total model
concurrency_seconds_total model concurrency
concurrency_tokens_total model concurrency
concurrency_requests_total model concurrency
kv_cache_usage_ratio engine
kv_cache_usage_max_ratio engine window
kv_cache_capacity_tokens engine
kv_cache_free_tokens engine
preemptions_total engine
upstream_requests engine state
gpu_memory_used_bytes gpu
gpu_memory_free_bytes gpu
up
upstream_scrape_success
upstream_scrape_duration_seconds
upstream_scrape_age_seconds
kv_signal_present
relay_loop_lag_seconds relay
relay_connections relay side
tap_dropped_total relay
unparsed_events_total reason
build_info version
draining
"""


@pytest.mark.parametrize("line", PROMISED.split("\n")[1:-1])
def test_promised_names_and_labels_are_there(line: str) -> None:
    name, *labels = line.split()
    spec = next(spec for spec in table.TABLE if spec.name == name)
    assert spec.label_names == tuple(labels)


def test_names_are_unique() -> None:
    names = [spec.name for spec in table.TABLE]
    assert len(names) == len(set(names))


def test_one_model_has_at_most_a_thousand_series() -> None:
    """With every closed label at every value it can take."""
    series = sum(
        spec.series_per_label_set * math.prod(len(label.values) for label in spec.labels if label.name != "model")
        for spec in table.TABLE
        if "model" in spec.label_names
    )
    assert 500 < series <= 1000


def test_every_label_of_a_metric_with_models_is_bounded() -> None:
    for spec in table.TABLE:
        if table.MODEL in spec.labels:
            assert all(label.values for label in spec.labels if label is not table.MODEL), spec.name


def test_no_label_can_carry_what_belongs_to_a_request() -> None:
    forbidden = {"request_id", "user", "api_key", "prompt", "path", "url", "client", "le", "quantile"}
    assert not forbidden & {label for spec in table.TABLE for label in spec.label_names}


def test_tenants_are_in_the_metrics_that_are_named_after_them_alone() -> None:
    """Those are there only where somebody asks for them."""
    assert {spec.name.startswith("tenant_") for spec in table.TABLE if "tenant" in spec.label_names} == {True}


def test_help_is_a_sentence() -> None:
    for spec in table.TABLE:
        assert spec.help.endswith("."), spec.name
        assert "  " not in spec.help, spec.name
        assert "\n" not in spec.help, spec.name


def test_help_of_times_names_the_unit_and_of_absent_values_says_so() -> None:
    for spec in table.TABLE:
        if spec.name.endswith("_seconds") and spec.kind is not Kind.COUNTER:
            assert "seconds" in spec.help.lower(), spec.name
    assert "Absent" in table.INTER_TOKEN_LATENCY_P99.help


def test_gap_bounds_resolve_fast_models_and_keep_the_edges_of_vllm() -> None:
    bounds = table.INTER_TOKEN_LATENCY.bounds
    assert bounds[0] == 0.001
    assert bounds[-1] == 120.0
    assert set(bounds) >= VLLM_GAP_EDGES
    # Gaps of 2 to 4 ms with some at 9 ms must not all fall into one bucket.
    assert len([bound for bound in bounds if bound < 0.01]) >= 5


def test_first_token_bounds_reach_twenty_minutes() -> None:
    assert table.TIME_TO_FIRST_TOKEN.bounds[-1] == 1200.0


def test_a_step_of_exactly_the_usual_budget_is_in_the_bucket_that_ends_there() -> None:
    assert len(STEP_BUCKETS) == len(STEP_EDGES) + 1


@pytest.mark.parametrize(
    ("name", "kind", "bounds", "complaint"),
    [
        ("stalls", Kind.COUNTER, (), "_total"),
        ("open_gap_total", Kind.GAUGE, (), "_total"),
        ("queue_seconds", Kind.HISTOGRAM, (), "bounds"),
        ("queue_seconds", Kind.GAUGE, (1.0,), "bounds"),
        ("queue_seconds", Kind.HISTOGRAM, (2.0, 1.0), "rise"),
        ("queue_seconds", Kind.HISTOGRAM, (1.0, 1.0), "rise"),
        ("queue_seconds", Kind.HISTOGRAM, (1.0, float("inf")), "finite"),
    ],
)
def test_a_wrong_declaration_is_refused(name: str, kind: Kind, bounds: tuple[float, ...], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Spec(name, kind, (), "Help.", bounds)


def test_series_of_a_label_set_count_buckets_sum_and_count() -> None:
    histogram = Spec("a_seconds", Kind.HISTOGRAM, (table.MODEL, Label("x", ("1", "2"))), "Help.", (1.0, 2.0))
    gauge = Spec("b", Kind.GAUGE, (table.MODEL,), "Help.")
    assert (histogram.series_per_label_set, gauge.series_per_label_set) == (5, 1)


def test_windows_are_named_as_people_write_them() -> None:
    assert [window_name(seconds) for seconds in (10, 60, 90, 300)] == ["10s", "1m", "90s", "5m"]
