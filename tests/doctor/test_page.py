from __future__ import annotations

import math
from pathlib import Path

import pytest

from prefillwatch.doctor.histogram import Estimate
from prefillwatch.doctor.page import OURS, PLUGIN_GAPS, Page
from prefillwatch.engine.errors import PageError

METRICS = Path(__file__).parents[1] / "data" / "metrics"
OF_A_SIDECAR = b'prefillwatch_build_info{version="0"} 1\n'


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        ("vllm_0_8", "vllm"),
        ("vllm_0_10", "vllm"),
        ("vllm_0_33_two_engines", "vllm"),
        ("vllm_ray_prefix", "vllm"),
        ("sglang_0_4", "sglang"),
        ("sglang_0_5", "sglang"),
        ("llamacpp", "llamacpp"),
        ("llamacpp_2024", "llamacpp"),
        ("tgi", "tgi"),
        ("trtllm", "trtllm"),
        ("triton_trtllm", "triton"),
        ("vllm_histograms_only", "vllm"),
    ],
)
def test_it_is_found_out_whose_page_it_is(name: str, namespace: str) -> None:
    assert Page((METRICS / f"{name}.txt").read_bytes()).namespace == namespace


@pytest.mark.parametrize("text", [b"", b"<!doctype html><html></html>", b'{"object": "list"}', b"\x00\xff" * 100])
def test_what_is_no_metrics_page_is_refused(text: bytes) -> None:
    with pytest.raises(PageError):
        Page(text)


def test_a_page_of_another_program_is_refused_by_name_of_those_known() -> None:
    with pytest.raises(PageError, match="none of prefillwatch, vLLM, SGLang"):
        Page(b"# TYPE go_goroutines gauge\ngo_goroutines 8\n")


def test_series_add_up_unless_a_label_picks_some() -> None:
    page = Page(
        OF_A_SIDECAR
        + b'prefillwatch_stalls_total{model="a",cause="prefill"} 3\n'
        + b'prefillwatch_stalls_total{model="b",cause="prefill"} 4\n'
        + b'prefillwatch_stalls_total{model="b",cause="client"} 5\n'
        + b'prefillwatch_open_gap_seconds{model="a"} 0.1\nprefillwatch_open_gap_seconds{model="b"} 7\n'
    )
    assert page.namespace == OURS
    assert page.total("stalls_total") == 12
    assert page.total("stalls_total", model="b") == 9
    assert page.totals("stalls_total", "cause") == {"prefill": 7, "client": 5}
    assert page.highest("open_gap_seconds") == 7
    assert page.total("frozen_streams") is None


def test_histograms_by_a_label() -> None:
    page = Page(
        OF_A_SIDECAR
        + b'prefillwatch_step_seconds_bucket{model="a",step_prefill_tokens="none",le="0.1"} 3\n'
        + b'prefillwatch_step_seconds_bucket{model="a",step_prefill_tokens="none",le="+Inf"} 4\n'
        + b'prefillwatch_step_seconds_sum{model="a",step_prefill_tokens="none"} 0.5\n'
        + b'prefillwatch_step_seconds_bucket{model="a",step_prefill_tokens="8k+",le="0.1"} 0\n'
        + b'prefillwatch_step_seconds_bucket{model="a",step_prefill_tokens="8k+",le="+Inf"} 2\n'
    )
    found = page.histograms("step_seconds", "step_prefill_tokens")
    assert {size: each.counts for size, each in found.items()} == {"none": (3.0, 1.0), "8k+": (0.0, 2.0)}
    assert found["none"].sum == 0.5


def test_a_bound_that_is_no_number_is_left_out() -> None:
    text = b'vllm:time_to_first_token_seconds_bucket{le="x"} 3\nvllm:time_to_first_token_seconds_bucket{le="0.1"} 2\n'
    found = Page(text + b"vllm:num_requests_running 0\n").histogram("time_to_first_token_seconds")
    assert found is not None
    assert found.count == 2


@pytest.mark.parametrize("value", ["1e308", "-1e308", "+Inf", "NaN"])
def test_values_beyond_all_counts_are_left_out(value: str) -> None:
    text = "".join(f'vllm:time_to_first_token_seconds_bucket{{le="{bound}"}} {value}\n' for bound in (0.1, 0.2))
    page = Page(f'{text}vllm:time_to_first_token_seconds_bucket{{le="+Inf"}} 2\nvllm:num_requests_running 0\n'.encode())
    found = page.histogram("time_to_first_token_seconds")
    assert found is not None
    assert (found.count, found.longest()) == (2, Estimate(0.0, 0.0, math.inf))


def test_what_our_plugin_tells_is_found_on_the_servers_page() -> None:
    page = Page(
        b"vllm:num_requests_running 3\n"
        b'prefillwatch_engine_inter_token_latency_seconds_bucket{engine="0",step_prefill_tokens="none",le="0.1"} 3\n'
    )
    assert page.namespace == "vllm"
    assert list(page.histograms(PLUGIN_GAPS, "step_prefill_tokens", OURS)) == ["none"]


def test_parts_of_one_engine_count_once() -> None:
    page = Page(
        b'sglang:generation_tokens_total{tp_rank="0"} 5\nsglang:generation_tokens_total{tp_rank="1"} 5\n'
        b"sglang:num_running_reqs 1\n"
    )
    assert page.total("generation_tokens_total") == 5


def test_more_series_than_are_read_at_once() -> None:
    lines = b"".join(b'prefillwatch_stalls_total{model="m%d",cause="client"} 1\n' % number for number in range(9000))
    assert Page(OF_A_SIDECAR + lines).total("stalls_total") == 9000
