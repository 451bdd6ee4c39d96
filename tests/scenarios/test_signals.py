"""What upstream's metrics and the wire may do to the figures: new names, several engines, nothing, slow drift."""

from __future__ import annotations

import random

import pytest
from tests.scenarios.playbook import Scene, beat

from prefillwatch.core.engine_page import engine_page
from prefillwatch.engine.errors import PageError
from prefillwatch.engine.kinds import read_page
from prefillwatch.export import table


def page(*lines: str) -> bytes:
    return "\n".join(lines).encode() + b"\n"


def test_renamed_metrics_give_the_same_value_and_none_gives_none() -> None:
    old, new = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.7', 'vllm:kv_cache_usage_perc{model_name="m"} 0.7'
    running = 'vllm:num_requests_running{model_name="m"} 3'
    for lines in ((old, running), (new, running), (old, new, running)):
        assert engine_page(read_page(page(*lines)), 0, 0.0).kv_usage == 0.7
    assert engine_page(read_page(page(running)), 0, 0.0).kv_usage is None


def test_several_engines_are_never_averaged() -> None:
    lines = [
        'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.10',
        'vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.98',
        'vllm:num_preemptions_total{engine="0",model_name="m"} 0',
        'vllm:num_preemptions_total{engine="1",model_name="m"} 7',
        'vllm:num_requests_running{engine="0",model_name="m"} 2',
        'vllm:num_requests_running{engine="1",model_name="m"} 5',
    ]
    seen = engine_page(read_page(page(*lines)), 0, 0.0)
    assert (seen.kv_usage, seen.preemptions, seen.running, seen.engines) == (0.98, 7, 7, 2)
    assert seen.waiting is None


@pytest.mark.parametrize("body", [b"", b"<html>502</html>", b"\x00\xff" * 100])
def test_a_broken_page_is_an_error_and_verdicts_go_on_without(body: bytes) -> None:
    with pytest.raises(PageError):
        read_page(body)
    scene = Scene()
    scene.victims(2, beat(20, 9000, (4000, 900)))
    scene.prompt(3900, 9000).answers([4905]).ends(4906)
    scene.play()
    assert scene.incident()["cause"] == "prefill"
    assert scene.incident()["evidence"]["engine_gauges_known"] is False


def test_a_slow_drift_raises_nothing() -> None:
    """The clock of the GPU falls: everything takes longer by the same factor."""
    scene = Scene()
    at, times = 100.0, []
    while at < 60_000:
        times.append(at)
        at += 20 + 16 * at / 60_000
    scene.victims(3, times)
    for second in range(5, 55, 5):
        first = min(each for each in times if each > 1000 * second + 60) + 3
        scene.prompt(1000 * second, 100).answers([first]).ends(first + 1)
    scene.play()
    assert scene.incidents() == []
    assert scene.incidents("wait") == []


def test_percentiles_of_a_fast_model_are_not_made_of_one_bucket() -> None:
    rng = random.Random(4)
    gaps = [9.0 if rng.random() < 0.02 else rng.uniform(2, 4) for _ in range(6000)]
    times = [100.0]
    for gap in gaps:
        times.append(times[-1] + gap)
    scene = Scene()
    scene.prompt(10, 16).answers(times).ends(times[-1] + 1)
    scene.play(until=times[-1] + 50)
    window = [gap for gap, at in zip(gaps, times[1:], strict=True) if at > times[-1] - 9900]
    ordered = sorted(window)
    for spec, share in ((table.INTER_TOKEN_LATENCY_P50, 0.5), (table.INTER_TOKEN_LATENCY_P99, 0.99)):
        told = scene.observed.values(spec)[("m", "10s", "all")] * 1000
        assert told == pytest.approx(ordered[int(share * len(ordered))], rel=0.1)


@pytest.mark.parametrize("seconds", [77, 110])
def test_very_long_stalls_have_buckets_of_their_own(seconds: int) -> None:
    scene = Scene()
    scene.victims(1, [*beat(20, 5000), 5000 + 1000.0 * seconds, 5020 + 1000.0 * seconds])
    scene.play()
    family = next(each for each in scene.observed.snapshot() if each.spec is table.INTER_TOKEN_LATENCY)
    counts = [sum(each) for each in zip(*(counts for counts, _ in family.buckets.values()), strict=True)]
    assert counts[-1] == 0, "nothing may fall beyond the last bound"
    assert sum(counts[-3:]) == 1


def test_one_time_to_first_token_per_request_also_after_a_preemption() -> None:
    scene = Scene()
    for number in range(10):
        times = beat(25, 9000, (3000 + 300 * number, 1500), start=100 + 10 * number)
        scene.prompt(10 + number, 100).answers(times).ends(times[-1] + 5)
    scene.prompt(500, 100).client_leaves(9000)
    scene.play()
    assert sum(scene.observed.counts(table.TIME_TO_FIRST_TOKEN).values()) == 10
