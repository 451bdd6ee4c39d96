"""Names for OpenTelemetry: what Prometheus makes of them again, by the rule that both specifications have for it."""

from __future__ import annotations

import re

from prefillwatch.export import table
from prefillwatch.export.otel_names import STANDARD, operation, otel_name
from prefillwatch.export.spec import Kind, Spec
from prefillwatch.wire.routes import GENERATING

#: https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics: units that are written out.
WRITTEN_OUT = {"s": "seconds", "By": "bytes"}


def in_prometheus(spec: Spec) -> str:
    """The name by that page: unit, then _total for sums that only rise, then _ratio for gauges in 1."""
    name, unit = otel_name(spec)
    name = re.sub("[^a-zA-Z0-9_]", "_", name)
    name += f"_{WRITTEN_OUT[unit]}" if unit in WRITTEN_OUT else ""
    if spec.kind is Kind.COUNTER:
        return f"{name}_total"
    return f"{name}_ratio" if unit == "1" and spec.kind is Kind.GAUGE else name


def test_prometheus_makes_the_name_of_the_page_of_it_again() -> None:
    assert {in_prometheus(spec) for spec in table.TABLE} == {spec.full_name for spec in table.TABLE}
    assert all(in_prometheus(spec) == spec.full_name for spec in table.TABLE)


def test_no_two_metrics_have_one_name() -> None:
    names = [otel_name(spec).name for spec in table.TABLE]
    assert len(set(names)) == len(names)


def test_units_are_units_and_no_part_of_a_name() -> None:
    assert otel_name(table.STALL_SECONDS) == ("prefillwatch.stall", "s")
    assert otel_name(table.STALLS) == ("prefillwatch.stalls", "")
    assert otel_name(table.KV_CACHE_USAGE) == ("prefillwatch.kv_cache_usage", "1")
    assert otel_name(table.GPU_MEMORY_USED) == ("prefillwatch.gpu_memory_used", "By")
    assert otel_name(table.PROMPT_LENGTH) == ("prefillwatch.prompt_length_tokens", "{token}")


def test_the_standard_has_its_own_names_and_nothing_of_ours_has_one() -> None:
    assert [(each.name, each.unit) for each in STANDARD] == [
        ("gen_ai.server.time_to_first_token", "s"),
        ("gen_ai.server.time_per_output_token", "s"),
        ("gen_ai.server.request.duration", "s"),
    ]
    assert not [spec for spec in table.TABLE if otel_name(spec).name.startswith("gen_ai")]


def test_what_is_asked_of_an_endpoint_is_called_as_in_the_standard_where_it_has_a_word() -> None:
    assert {operation(endpoint) for endpoint in GENERATING} == {
        *("chat", "text_completion", "embeddings"),
        *("audio", "pooling", "classify", "score", "rerank"),
    }
