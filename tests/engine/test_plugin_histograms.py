"""The two histograms on vLLM's /metrics, in one process and in several."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from prefillwatch.contract.buckets import GAP_BOUNDS, STEP_BUCKETS
from prefillwatch.engine.plugin.histograms import StepHistograms, prefill_bucket
from prefillwatch.engine.step_report import StepReport

STEP = "prefillwatch_engine_step_seconds"
GAP = "prefillwatch_engine_inter_token_latency_seconds"
Samples = dict[str, dict[tuple[str, ...], float]]


def samples(page: str) -> Samples:
    """By name: label values in order of the labels' names, and values."""
    found: Samples = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            values = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[values] = sample.value
    return found


@pytest.fixture
def page() -> tuple[StepHistograms, CollectorRegistry]:
    registry = CollectorRegistry()
    return StepHistograms(registry=registry), registry


def shown(registry: CollectorRegistry) -> Samples:
    return samples(generate_latest(registry).decode())


def report(tokens: int, seconds: float, *gaps: tuple[float, int], is_step: bool = True) -> StepReport:
    return StepReport(0, 1, 1, round(seconds * 1e9), is_step=is_step, prefill_tokens=tokens, gaps=list(gaps))


def test_steps_and_gaps_by_what_rode_in_the_step(page: tuple[StepHistograms, CollectorRegistry]) -> None:
    histograms, registry = page
    histograms.add("m", report(0, 0.01, (0.01, 3)))
    histograms.add("m", report(2048, 0.5, (0.5, 2), (0.7, 1)))
    got = shown(registry)
    assert got[f"{STEP}_count"] == {("0", "m", "none"): 1, ("0", "m", "512-2k"): 1}
    assert got[f"{STEP}_sum"][("0", "m", "512-2k")] == 0.5
    assert got[f"{GAP}_count"] == {("0", "m", "none"): 3, ("0", "m", "512-2k"): 3}
    assert got[f"{GAP}_sum"][("0", "m", "512-2k")] == pytest.approx(1.7)


def test_a_step_that_another_api_server_tells_is_not_counted_again(
    page: tuple[StepHistograms, CollectorRegistry],
) -> None:
    histograms, registry = page
    histograms.add("m", report(-1, 0.01, (0.01, 1), is_step=False))
    got = shown(registry)
    assert f"{STEP}_count" not in got
    assert got[f"{GAP}_count"] == {("0", "m", "unknown"): 1}


def test_no_series_of_creation_times(page: tuple[StepHistograms, CollectorRegistry]) -> None:
    histograms, registry = page
    histograms.add("m", report(0, 0.01, (0.01, 1)))
    assert not [name for name in shown(registry) if name.endswith("_created")]


@pytest.mark.parametrize("seconds", [0.0, 0.0009, *GAP_BOUNDS, 0.0151, 121.0])
def test_many_at_once_are_as_many_one_by_one(seconds: float) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    StepHistograms(registry=ours).add("m", report(0, 0.0, (seconds, 3), is_step=False))
    reference = Histogram(GAP, "", ("model_name", "engine", "step_prefill_tokens"), buckets=GAP_BOUNDS, registry=theirs)
    for _ in range(3):
        reference.labels("m", "0", "none").observe(seconds)
    buckets = f"{GAP}_bucket"
    assert shown(ours)[buckets] == shown(theirs)[buckets]


@pytest.mark.parametrize(
    ("tokens", "bucket"), [(-1, "unknown"), (0, "none"), (1, "1-512"), (512, "1-512"), (513, "512-2k"), (9000, "8k+")]
)
def test_bucket_of_a_step(tokens: int, bucket: str) -> None:
    assert prefill_bucket(tokens) == bucket


IN_ONE_OF_SEVERAL_PROCESSES = """
from prefillwatch.engine.plugin.histograms import StepHistograms
from prefillwatch.engine.step_report import StepReport
StepHistograms().add("m", StepReport(0, 1, 1, 10**7, prefill_tokens=0, gaps=[(0.01, 2)]))
"""
PAGE_OF_ALL = """
import json
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
print(json.dumps(generate_latest(registry).decode()))
"""


def test_the_page_of_several_processes_sums_them(tmp_path: Path) -> None:
    """As vLLM makes it with --api-server-count: each process writes files, whoever is asked reads them all."""
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}

    def run(program: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
        ).stdout

    for _ in range(2):
        run(IN_ONE_OF_SEVERAL_PROCESSES)
    got = samples(json.loads(run(PAGE_OF_ALL)))
    assert got[f"{STEP}_count"] == {("0", "m", "none"): 2}
    assert got[f"{GAP}_sum"] == {("0", "m", "none"): pytest.approx(0.04)}
    assert not [name for name in got if name.endswith("_created")]


def test_every_bucket_can_be_shown() -> None:
    assert {prefill_bucket(tokens) for tokens in (0, 1, 600, 3000, 10**6)} == set(STEP_BUCKETS)
