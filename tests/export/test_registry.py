"""Counters, gauges and histograms, and the copy of them that a scrape gets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.export import registry as registry_module
from prefillwatch.export.registry import Registry, Snapshot
from prefillwatch.export.spec import Kind, Label, Spec
from prefillwatch.export.table import EXPOSED_SERIES, LABEL_SETS_REFUSED, REQUESTS

MODEL = Label("model")
REQUESTED = Spec("asked_total", Kind.COUNTER, (MODEL, Label("outcome", ("ok", "error"))), "Help.")
STREAMS = Spec("streams", Kind.GAUGE, (MODEL,), "Help.")
GAP = Spec("gap_seconds", Kind.HISTOGRAM, (MODEL,), "Help.", (0.01, 0.1, 1.0))
SMALL = (REQUESTED, STREAMS, GAP)


def buckets(snapshot: Snapshot, spec: Spec, labels: tuple[str, ...]) -> tuple[list[int], float]:
    return next(family for family in snapshot if family.spec is spec).buckets[labels]


# --- Counters


def test_counter_adds_up_per_label_set() -> None:
    counter = Registry(SMALL).counter(REQUESTED)
    counter.add(("m", "ok"))
    counter.add(("m", "ok"), 2)
    counter.add(("m", "error"), 0)
    assert counter.value(("m", "ok")) == 3.0
    assert counter.value(("m", "error")) == 0.0


@pytest.mark.parametrize("amount", [-1.0, float("nan")])
def test_counter_cannot_fall(amount: float) -> None:
    counter = Registry(SMALL).counter(REQUESTED)
    with pytest.raises(ValueError, match="asked_total"):
        counter.add(("m", "ok"), amount)


def test_counter_kept_elsewhere_ignores_a_total_that_fell() -> None:
    counter = Registry(SMALL).counter(REQUESTED)
    for total in (5.0, 3.0, 7.0):
        counter.set_total(("m", "ok"), total)
    assert counter.value(("m", "ok")) == 7.0
    counter.set_total(("m", "ok"), 1.0)
    assert counter.value(("m", "ok")) == 7.0


# --- Gauges


def test_unknown_gauges_are_absent() -> None:
    gauge = Registry(SMALL).gauge(STREAMS)
    gauge.set(("a",), 4)
    gauge.set(("b",), 0)
    gauge.set(("c",), None)
    gauge.set(("d",), float("nan"))
    assert ("a",) in gauge
    assert ("b",) in gauge
    assert len(gauge) == 2
    gauge.set(("a",), None)
    assert ("a",) not in gauge


def test_replacing_a_gauge_removes_what_is_gone() -> None:
    gauge = Registry(SMALL).gauge(STREAMS)
    gauge.set(("gone",), 1)
    gauge.replace({("here",): 2.0, ("unknown",): None})
    assert ("gone",) not in gauge
    assert ("unknown",) not in gauge
    assert gauge.value(("here",)) == 2.0
    gauge.clear()
    assert len(gauge) == 0


# --- Histograms


def test_bounds_are_inclusive() -> None:
    registry = Registry(SMALL)
    for value in (0.0, 0.01, 0.010001, 0.1, 1.0, 1.5):
        registry.histogram(GAP).observe(("m",), value)
    assert buckets(registry.snapshot(), GAP, ("m",)) == ([2, 2, 1, 1], pytest.approx(2.620001))


@given(st.lists(st.floats(min_value=0, max_value=10), max_size=50))
def test_many_values_at_once_count_as_one_by_one(values: list[float]) -> None:
    one_by_one, at_once = Registry(SMALL), Registry(SMALL)
    for value in values:
        one_by_one.histogram(GAP).observe(("m",), value)
    at_once.histogram(GAP).observe_many(("m",), np.array(values, dtype=np.float64))
    if values:
        counts, total = buckets(one_by_one.snapshot(), GAP, ("m",))
        assert buckets(at_once.snapshot(), GAP, ("m",)) == (counts, pytest.approx(total))


def test_values_that_are_not_finite_spoil_nothing() -> None:
    registry = Registry(SMALL)
    histogram = registry.histogram(GAP)
    for value in (float("nan"), float("inf"), 0.5):
        histogram.observe(("m",), value)
    histogram.observe_many(("m",), np.array([np.nan, -np.inf, 0.5]))
    assert buckets(registry.snapshot(), GAP, ("m",)) == ([0, 0, 2, 0], 1.0)


def test_counts_from_elsewhere_are_added_or_taken_over() -> None:
    registry = Registry(SMALL)
    histogram = registry.histogram(GAP)
    histogram.add_counts(("m",), [1, 0, 0, 2], 3.0)
    histogram.add_counts(("m",), [1, 1, 0, 0], 0.1)
    assert buckets(registry.snapshot(), GAP, ("m",)) == ([2, 1, 0, 2], pytest.approx(3.1))
    histogram.set_counts(("m",), [1, 2, 3, 4], 9.0)
    assert buckets(registry.snapshot(), GAP, ("m",)) == ([1, 2, 3, 4], 9.0)


def test_counts_for_other_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="3 bucket counts for 3 bounds"):
        Registry(SMALL).histogram(GAP).add_counts(("m",), [1, 2, 3], 1.0)


def test_a_child_at_hand_is_the_same_series() -> None:
    registry = Registry(SMALL)
    child = registry.histogram(GAP).child(("m",))
    child.observe(0.05)
    registry.histogram(GAP).observe(("m",), 0.05)
    assert buckets(registry.snapshot(), GAP, ("m",))[0] == [0, 2, 0, 0]


# --- Label sets


def test_known_label_sets_exist_at_zero_when_asked_for() -> None:
    registry = Registry(SMALL)
    registry.precreate(REQUESTED, model="m")
    registry.precreate(GAP, model="m")
    assert registry.counter(REQUESTED).value(("m", "error")) == 0.0
    assert buckets(registry.snapshot(), GAP, ("m",)) == ([0, 0, 0, 0], 0.0)


def test_precreating_leaves_what_was_counted() -> None:
    registry = Registry(SMALL)
    registry.counter(REQUESTED).add(("m", "ok"), 3)
    registry.precreate(REQUESTED, model="m")
    assert registry.counter(REQUESTED).value(("m", "ok")) == 3.0


@pytest.mark.parametrize("labels", [(), ("m",), ("m", "ok", "more"), ("m", 5)])
def test_labels_that_do_not_fit_are_an_error_naming_the_metric(labels: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="asked_total"):
        Registry(SMALL).counter(REQUESTED).add(labels)


def test_a_model_no_longer_served_vanishes_everywhere() -> None:
    registry = Registry(SMALL)
    for model in ("old", "new"):
        registry.counter(REQUESTED).add((model, "ok"))
        registry.gauge(STREAMS).set((model,), 1)
        registry.histogram(GAP).observe((model,), 1)
    registry.forget("model", "old")
    assert all(len(family) == 1 for family in registry)
    registry.gauge(STREAMS).remove(("never there",))


def test_a_label_somebody_forgot_to_bound_stops_growing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "MAX_LABEL_SETS", 10)
    registry = Registry((*SMALL, LABEL_SETS_REFUSED))
    for number in range(50):
        registry.gauge(STREAMS).set((f"made up {number}",), 1)
        registry.histogram(GAP).observe((f"made up {number}",), 1)
        registry.counter(REQUESTED).add((f"made up {number}", "ok"))
    registry.gauge(STREAMS).set(("made up 3",), 7)
    assert [len(family) for family in registry][:3] == [10, 10, 10]
    assert registry.gauge(STREAMS).value(("made up 3",)) == 7
    registry.snapshot()
    assert registry.counter(LABEL_SETS_REFUSED).value() == 120


def test_asking_for_the_wrong_kind_is_an_error() -> None:
    registry = Registry(SMALL)
    for ask, spec in ((registry.counter, GAP), (registry.gauge, REQUESTED), (registry.histogram, STREAMS)):
        with pytest.raises(TypeError, match=spec.name):
            ask(spec)


# --- Snapshots


def test_a_snapshot_stays_as_it_was() -> None:
    registry = Registry(SMALL)
    registry.counter(REQUESTED).add(("m", "ok"))
    registry.histogram(GAP).observe(("m",), 0.5)
    before = registry.snapshot()
    registry.counter(REQUESTED).add(("m", "ok"))
    registry.histogram(GAP).observe(("m",), 0.5)
    registry.gauge(STREAMS).set(("m",), 1)
    assert before[0].values == {("m", "ok"): 1.0}
    assert before[1].values == {}
    assert before[2].buckets == {("m",): ([0, 0, 1, 0], 0.5)}


def test_the_number_of_series_is_told() -> None:
    registry = Registry((*SMALL, EXPOSED_SERIES))
    registry.histogram(GAP).observe(("m",), 0.5)
    snapshot = registry.snapshot()
    assert snapshot[3].values[()] == sum(family.series for family in snapshot) == 7


def test_the_whole_table_starts_empty() -> None:
    snapshot = Registry().snapshot()
    assert sum(family.series for family in snapshot) == 2  # this number, and that nothing was refused
    assert any(family.spec is REQUESTS for family in snapshot)
