"""The same figures from pages of servers of several kinds and times."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefillwatch.doctor.figures import Figures, size_order
from prefillwatch.doctor.look import Look
from prefillwatch.doctor.page import Page
from prefillwatch.doctor.readers import moment_of, read
from prefillwatch.export import table

METRICS = Path(__file__).parents[1] / "data" / "metrics"


def figures_of(text: str) -> Figures:
    page = Page(text.encode())
    return read(Look(page, moments=(moment_of(page),)))


def histogram_lines(name: str, count: int, labels: str = "") -> str:
    inner = f"{labels}," if labels else ""
    return f'{name}_bucket{{{inner}le="0.1"}} {count}\n{name}_bucket{{{inner}le="+Inf"}} {count}\n'


@pytest.mark.parametrize(
    "lines",
    [
        histogram_lines("vllm:time_per_output_token_seconds", 7),
        histogram_lines("vllm:inter_token_latency_seconds", 7),
        histogram_lines("vllm:inter_token_latency_seconds", 7)
        + histogram_lines("vllm:time_per_output_token_seconds", 7),
        histogram_lines("ray_vllm_inter_token_latency_seconds", 7),
    ],
)
def test_gaps_under_the_names_of_all_releases(lines: str) -> None:
    found = figures_of(lines + "vllm:num_requests_running 1\n")
    assert found.gap_count == 7


def test_a_mean_per_request_is_no_gap() -> None:
    lines = histogram_lines("vllm:request_time_per_output_token_seconds", 7)
    assert figures_of(lines + "vllm:num_requests_running 1\n").gaps is None


def test_several_engines_add_up_and_the_fullest_cache_counts() -> None:
    text = (METRICS / "vllm_0_33_two_engines.txt").read_text()
    gaps = histogram_lines("vllm:inter_token_latency_seconds", 7, 'engine="0"')
    found = figures_of(text + gaps + histogram_lines("vllm:inter_token_latency_seconds", 5, 'engine="1"'))
    page = Page(text.encode())
    own = page.histogram("inter_token_latency_seconds")
    usages = [engine.kv_usage for engine in page.engines.engines if engine.kv_usage is not None]
    assert len(usages) == 2
    assert own is not None
    assert found.gap_count == own.count + 12
    assert found.highest("kv_usage") == max(usages)
    assert found.moments[0].running == sum(engine.running or 0 for engine in page.engines.engines)


def test_the_oldest_release() -> None:
    found = figures_of((METRICS / "vllm_0_8.txt").read_text())
    assert found.highest("kv_usage") == 0.4375
    assert found.preemptions == 3
    assert (found.moments[0].running, found.moments[0].waiting) == (7, 2)
    assert found.kv_capacity == 27350 * 16


def test_sglang_by_its_own_names() -> None:
    found = figures_of(
        (METRICS / "sglang_0_5.txt").read_text()
        + histogram_lines("sglang:inter_token_latency_seconds", 7)
        + histogram_lines("sglang:time_to_first_token_seconds", 3)
        + histogram_lines("sglang:queue_time_seconds", 3)
        + histogram_lines("sglang:prompt_tokens_histogram", 3)
        + "sglang:num_requests_total 3\nsglang:generation_tokens_total 90\n"
    )
    assert found.gap_count == 7
    assert found.first_tokens[""].count == 3
    assert found.queue[""].count == 3
    assert found.prompts is not None
    assert (found.finished, found.generated, found.preemptions) == (3, 90, 6)
    assert not found.is_sidecar


def test_llama_cpp_tells_little_and_nothing_is_made_up() -> None:
    found = figures_of((METRICS / "llamacpp.txt").read_text())
    assert found.gaps is None
    assert found.preemptions is None
    assert found.highest("kv_usage") is None
    assert found.most_streams() == 3


def test_sizes_of_a_sidecar_are_in_order() -> None:
    prompts, steps = table.CONCURRENT_PROMPT.values, table.STEP.values
    assert sorted({*prompts}, key=size_order) == ["none", *(label for label in prompts if label != "none")]
    assert sorted({*steps}, key=size_order) == list(steps)
