"""Slow gaps and late first tokens name their request and its trace, on a page for those who can read it."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from tests.scenarios.playbook import Scene, beat

from prefillwatch.analysis.requests import Request
from prefillwatch.export import table
from prefillwatch.export.exposition import render
from prefillwatch.export.registry import Exemplar, HistogramChild
from prefillwatch.export.spec import Spec
from prefillwatch.observer.metrics.exemplars import Exemplars, exemplar_labels
from prefillwatch.units import NS
from prefillwatch.wire.trace_context import TraceParent

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


def frozen_once(**victims: Any) -> Scene:
    """Three streams stand still for 830 ms, and the prompt that does it waits 2.4 s for its first token."""
    scene = Scene()
    scene.victims(3, beat(21, 12_000, (7000, 830)), **victims)
    scene.prompt(5400, 6000, "lump").answers(beat(21, 8200, start=7830)).ends(8210)
    return scene.play()


def with_exemplar(scene: Scene, spec: Spec) -> list[Sample]:
    families = [family for family in scene.observed.snapshot() if family.spec is spec]
    body, _ = render(tuple(families), OPENMETRICS)
    parsed = text_string_to_metric_families(body.decode())  # type: ignore[no-untyped-call]
    return [sample for family in parsed for sample in family.samples if sample.exemplar]


def test_a_frozen_stream_is_named_at_the_bucket_of_its_gap() -> None:
    scene = frozen_once(traceparents=[TRACEPARENT] * 3)
    (sample,) = with_exemplar(scene, table.INTER_TOKEN_LATENCY)
    assert (sample.labels["le"], sample.labels["concurrent_prompt"]) == ("1.0", "2k-8k")
    exemplar = sample.exemplar
    assert exemplar is not None
    assert exemplar.labels["trace_id"] == TRACE
    assert exemplar.labels["request_id"].startswith("victim-")
    assert exemplar.value == pytest.approx(0.83, abs=0.02)


def test_a_late_first_token_is_named_with_what_is_known_of_it() -> None:
    (sample,) = with_exemplar(frozen_once(), table.TIME_TO_FIRST_TOKEN)
    assert sample.labels["prompt_bucket"] == "2k-8k"
    assert sample.exemplar is not None
    assert sample.exemplar.labels == {"request_id": "lump"}
    assert sample.exemplar.value == pytest.approx(2.43, abs=0.02)


def test_where_nothing_is_slow_nobody_is_named() -> None:
    scene = Scene()
    scene.victims(3, beat(21, 5000), traceparents=[TRACEPARENT] * 3)
    scene.play()
    assert not with_exemplar(scene, table.INTER_TOKEN_LATENCY)
    assert not with_exemplar(scene, table.TIME_TO_FIRST_TOKEN)


def test_the_plain_page_names_nobody() -> None:
    body, _ = render(frozen_once(traceparents=[TRACEPARENT] * 3).observed.snapshot())
    assert TRACE.encode() not in body
    assert b"lump" not in body


def test_it_says_when_by_the_clock_on_the_wall() -> None:
    child = HistogramChild((0.1, 1.0))
    request = Request(rid=1, endpoint="chat", received_ns=1, model=0, request_id="a")
    exemplars = Exemplars(2.0, lambda: 1_700_000_000.0)
    exemplars.note(child, 0.5, request, 3 * NS)
    exemplars.note(child, 0.75, request, 4 * NS)
    assert child.exemplars == {1: Exemplar(0.75, {"request_id": "a"}, 1_700_000_004.0)}, "the newest of its bucket"


def labels_of(request_id: str, trace: TraceParent | None = None) -> dict[str, str]:
    return exemplar_labels(Request(rid=1, endpoint="chat", received_ns=1, model=0, request_id=request_id, trace=trace))


def test_an_id_that_does_not_fit_is_left_out_rather_than_cut() -> None:
    trace = TraceParent(TRACE, "00f067aa0ba902b7", "01")
    assert labels_of("r" * 78, trace) == {"trace_id": TRACE, "request_id": "r" * 78}
    assert labels_of("r" * 79, trace) == {"trace_id": TRACE}
    assert labels_of("r" * 118) == {"request_id": "r" * 118}
    assert labels_of("r" * 119) == {}
    assert labels_of("") == {}
