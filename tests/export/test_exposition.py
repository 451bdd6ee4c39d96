"""The text that scrapers get, read back by parsers that are not ours, and compared with what their library writes."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from prometheus_client.exposition import generate_latest as prometheus_text
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_text
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus
from prometheus_client.registry import Collector

from prefillwatch.export import table
from prefillwatch.export.exposition import render, wants_openmetrics
from prefillwatch.export.registry import FamilySnapshot, Registry, Snapshot
from prefillwatch.export.spec import Kind, Label, Spec

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
PROMETHEUS_2 = (
    f"{OPENMETRICS},application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)

NASTY = 'quote " backslash \\ newline \n tab \t ünï 日本 {a="b"} 1 #'


@pytest.fixture(scope="module")
def full() -> Registry:
    """Every metric of the table with every label set it can have, for two models."""
    registry = Registry()
    for spec, open_value in itertools.product(table.TABLE, ("llama-8b", NASTY)):
        if spec.kind is Kind.GAUGE:
            for labels in itertools.product(*(label.values or (open_value,) for label in spec.labels)):
                registry.gauge(spec).set(labels, 0.5)
        else:
            registry.precreate(spec, **{label.name: open_value for label in spec.labels if not label.values})
    registry.histogram(table.INTER_TOKEN_LATENCY).observe(("llama-8b", "none"), 0.021)
    return registry


def parsed(registry: Registry, accept: str = "") -> dict[str, Metric]:
    body, content_type = render(registry.snapshot(), accept)
    parse = parse_openmetrics if "openmetrics" in content_type else parse_prometheus
    return {metric.name: metric for metric in parse(body.decode())}


class Reference(Collector):
    """A snapshot as prometheus_client knows metrics."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        return map(metric_of, self.snapshot)


def metric_of(family: FamilySnapshot) -> Metric:
    spec = family.spec
    name = spec.full_name.removesuffix("_total")
    unit = name.rsplit("_", 1)[-1]
    metric = Metric(name, spec.help, spec.kind.value, unit if unit in ("seconds", "bytes", "tokens", "ratio") else "")
    for labels, value in family.values.items():
        metric.add_sample(spec.full_name, dict(zip(spec.label_names, labels, strict=True)), value)
    for labels, (counts, total) in family.buckets.items():
        own = dict(zip(spec.label_names, labels, strict=True))
        for bound, below in zip((*map(repr, spec.bounds), "+Inf"), itertools.accumulate(counts), strict=True):
            metric.add_sample(f"{name}_bucket", {**own, "le": bound}, below)
        metric.add_sample(f"{name}_sum", own, total)
        metric.add_sample(f"{name}_count", own, sum(counts))
    return metric


def same_as_the_library_writes(registry: Registry) -> bool:
    snapshot = registry.snapshot()
    reference = Reference(snapshot)
    prometheus, openmetrics = render(snapshot)[0], render(snapshot, OPENMETRICS)[0]
    return prometheus == prometheus_text(reference) and openmetrics == openmetrics_text(reference)


def test_the_whole_table_is_written_as_the_library_would(full: Registry) -> None:
    assert same_as_the_library_writes(full)


def test_nothing_stale_is_written_when_values_change(full: Registry) -> None:
    full.histogram(table.INTER_TOKEN_LATENCY).observe((NASTY, "none"), 0.5)
    full.counter(table.GENERATED_TOKENS).add((NASTY,), 12)
    full.gauge(table.DECODING_STREAMS).replace({("another",): 3.0})
    assert same_as_the_library_writes(full)
    full.gauge(table.DECODING_STREAMS).replace({("llama-8b",): 0.5, (NASTY,): 0.5})


def test_numbers_are_written_as_the_library_would() -> None:
    numbers = [0.0, -0.0, 1.0, 0.1, 1e-7, 123456.789, 999999.0, 999999.99, 1e6, 1000001.0, 1234567.25, 1e9, 1e15, 1e16]
    numbers += [1.5e300, -1e6, -1234567.0, -5.5, float("inf"), float("-inf"), 2.0**53, 100000000.0, 17179869184.0]
    spec = Spec("figure", Kind.GAUGE, (Label("number"),), 'Help with "quotes", \\ and\ntwo lines.')
    bare = Spec("bare", Kind.GAUGE, (), "Help.")
    spans = Spec("span_seconds", Kind.HISTOGRAM, (Label("z"), Label("a")), "Help.", (0.001, 5e-5 * 50, 10.0, 120.0))
    registry = Registry((spec, bare, spans))
    for number in numbers:
        registry.gauge(spec).set((repr(number),), number)
        registry.gauge(bare).set((), number)
        registry.histogram(spans).observe((NASTY, "a"), abs(number))
    registry.histogram(spans).add_counts(("z", "a"), [2_000_000, 0, 7, 999_999, 1], 3e7)
    assert same_as_the_library_writes(registry)


def test_promtool_finds_nothing_to_complain_about(full: Registry) -> None:
    promtool = shutil.which("promtool")
    assert promtool is not None, "promtool is missing: install Debian's prometheus package (apt-get install prometheus)"
    body, _ = render(full.snapshot())
    result = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True, check=False)
    assert (result.returncode, result.stderr.decode()) == (0, "")


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_everything_comes_back_through_a_parser(full: Registry, accept: str) -> None:
    families = parsed(full, accept)
    assert set(families) == {spec.full_name.removesuffix("_total") for spec in table.TABLE}
    for spec in table.TABLE:
        family = families[spec.full_name.removesuffix("_total")]
        assert family.type == spec.kind.value
        assert family.documentation == spec.help
    series = sum(len(family.samples) for family in families.values())
    assert series == sum(family.series for family in full.snapshot())


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_label_values_survive_escaping(full: Registry, accept: str) -> None:
    streams = parsed(full, accept)["prefillwatch_decoding_streams"]
    assert {sample.labels["model"] for sample in streams.samples} == {"llama-8b", NASTY}


def test_half_a_surrogate_pair_does_not_break_the_page() -> None:
    registry = Registry()
    registry.gauge(table.DECODING_STREAMS).set(("bad \ud800 name",), 1)
    body, _ = render(registry.snapshot())
    assert rb'model="bad \\ud800 name"' in body


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_histogram_is_cumulative(accept: str) -> None:
    spec = Spec("gap_seconds", Kind.HISTOGRAM, (Label("model"),), "Help.", (0.01, 0.1))
    registry = Registry((spec,))
    for value in (0.005, 0.05, 0.05, 7.0):
        registry.histogram(spec).observe(("m",), value)
    samples = parsed(registry, accept)["prefillwatch_gap_seconds"].samples
    assert {(sample.name, sample.labels.get("le")): sample.value for sample in samples} == {
        ("prefillwatch_gap_seconds_bucket", "0.01"): 1.0,
        ("prefillwatch_gap_seconds_bucket", "0.1"): 3.0,
        ("prefillwatch_gap_seconds_bucket", "+Inf"): 4.0,
        ("prefillwatch_gap_seconds_count", None): 4.0,
        ("prefillwatch_gap_seconds_sum", None): pytest.approx(7.105),
    }


def test_nothing_tells_when_a_series_was_created(full: Registry) -> None:
    for accept in ("", OPENMETRICS):
        assert b"_created" not in render(full.snapshot(), accept)[0]


def test_openmetrics_ends_properly_and_tells_units(full: Registry) -> None:
    body, content_type = render(full.snapshot(), OPENMETRICS)
    assert content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert body.endswith(b"# EOF\n")
    assert b"# UNIT prefillwatch_inter_token_latency_seconds seconds\n" in body
    assert b"# UNIT prefillwatch_kv_cache_usage_ratio ratio\n" in body


def test_a_metric_without_values_has_no_samples() -> None:
    families = parsed(Registry())
    assert families["prefillwatch_open_gap_seconds"].samples == []


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        (OPENMETRICS, True),
        (PROMETHEUS_2, True),
        ("Application/OpenMetrics-Text", True),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=0.3,text/plain;q=0.9", False),
        ("text/plain;version=0.0.4,application/openmetrics-text", True),
        ("application/openmetrics-text;q=garbage", False),
        (";;,,=;q=1,", False),
    ],
)
def test_the_scraper_chooses_the_format(accept: str, wanted: bool) -> None:
    assert wants_openmetrics(accept) is wanted
