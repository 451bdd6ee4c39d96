"""The text that scrapers get, read back by parsers that are not ours."""

from __future__ import annotations

import itertools
import shutil
import subprocess

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from prefillwatch.export import table
from prefillwatch.export.exposition import render
from prefillwatch.export.registry import Registry
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


def test_numbers_are_written_in_full_and_as_go_reads_them() -> None:
    spans = Spec("span_seconds", Kind.HISTOGRAM, (Label("z"), Label("a")), "Help.", (0.001, 0.0025, 120.0))
    figure = Spec("figure", Kind.GAUGE, (), 'Help with "quotes", \\ and\ntwo lines.')
    registry = Registry((figure, spans))
    registry.gauge(figure).set((), 17179869184.0)
    registry.histogram(spans).add_counts(("z", "a"), [2_000_000, 0, 7, 1], 3e7)
    assert render(registry.snapshot())[0].decode() == (
        '# HELP prefillwatch_figure Help with "quotes", \\\\ and\\ntwo lines.\n'
        "# TYPE prefillwatch_figure gauge\n"
        "prefillwatch_figure 1.7179869184e+10\n"
        "# HELP prefillwatch_span_seconds Help.\n"
        "# TYPE prefillwatch_span_seconds histogram\n"
        'prefillwatch_span_seconds_bucket{a="a",le="0.001",z="z"} 2e+06\n'
        'prefillwatch_span_seconds_bucket{a="a",le="0.0025",z="z"} 2e+06\n'
        'prefillwatch_span_seconds_bucket{a="a",le="120.0",z="z"} 2.000007e+06\n'
        'prefillwatch_span_seconds_bucket{a="a",le="+Inf",z="z"} 2.000008e+06\n'
        'prefillwatch_span_seconds_sum{a="a",z="z"} 3e+07\n'
        'prefillwatch_span_seconds_count{a="a",z="z"} 2.000008e+06\n'
    )


@pytest.mark.apart
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
    assert content_type.startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert body.endswith(b"# EOF\n")
    assert b"# UNIT prefillwatch_inter_token_latency_seconds seconds\n" in body
    assert b"# UNIT prefillwatch_kv_cache_usage_ratio ratio\n" in body


def test_a_metric_without_values_has_no_samples() -> None:
    families = parsed(Registry())
    assert families["prefillwatch_open_gap_seconds"].samples == []


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        (OPENMETRICS, True),
        (PROMETHEUS_2, True),
        ("Application/OpenMetrics-Text", True),
        ("text/plain;version=0.0.4,application/openmetrics-text", True),
        (f"{OPENMETRICS};escaping=allow-utf-8", True),
        ("application/openmetrics-text;version=x", False),
        (f"application/openmetrics-text;version={'9' * 5000}", False),
        (";;,,=;q=1,", False),
    ],
)
def test_the_scraper_chooses_the_format(accept: str, openmetrics: bool) -> None:
    body, content_type = render(Registry().snapshot(), accept)
    assert content_type.startswith("application/openmetrics-text; " if openmetrics else "text/plain; ")
    assert body.endswith(b"# EOF\n") is openmetrics
