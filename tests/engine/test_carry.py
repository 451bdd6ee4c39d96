"""Counters over restarts and the peak of a window, as timelines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.engine.carry import CarriedCounter, EngineCarry, Peak
from prefillwatch.engine.kinds import EngineSample
from prefillwatch.units import NS


def after(*updates: tuple[float | None, float | None]) -> CarriedCounter:
    counter = CarriedCounter()
    for raw, start_time in updates:
        counter.update(raw, start_time)
    return counter


@pytest.mark.parametrize(
    ("story", "updates", "total", "restarts"),
    [
        ("never told", [(None, None)], None, 0),
        ("what it had when first seen", [(7, 100)], 7, 0),
        ("goes on", [(7, 100), (7, 100), (9, 100)], 9, 0),
        ("restarts at zero", [(7, 100), (0, 200), (2, 200)], 9, 1),
        ("restarts and has overtaken the old count", [(7, 100), (9, 200)], 16, 1),
        ("falls without a start time", [(7, None), (2, None), (3, None)], 10, 1),
        ("falls with the same start time", [(7, 100), (1, 100)], 8, 1),
        ("restarts twice", [(7, 100), (1, 200), (1, 300)], 9, 2),
        ("is not told for a while", [(7, 100), (None, 100), (8, 100)], 8, 0),
        ("restarts while not told", [(7, 100), (None, 200), (3, 200)], 10, 1),
        ("start time is not always told", [(7, 100), (8, None), (9, 100)], 9, 0),
        ("the clock was set back", [(5, 1000), (6, 1000), *[(2, 900)] * 40, (3, 900)], 9, 1),
        ("not yet", [(5, 1000), (6, 1000), *[(2, 900)] * 20], 6, 0),
        ("another process is asked for a while", [(5, 1000), *[(2, 900)] * 20, (6, 1000), *[(2, 900)] * 20], 6, 0),
        ("two processes answer in turn", [(7, 100), (3, 200), (7, 100), (4, 200), (8, 100), (5, 200)], 12, 1),
    ],
)
def test_counter(
    story: str, updates: list[tuple[float | None, float | None]], total: float | None, restarts: int
) -> None:
    counter = after(*updates)
    assert (counter.total, counter.restarts) == (total, restarts), story


@given(st.lists(st.tuples(st.none() | st.integers(0, 100), st.none() | st.integers(0, 5))))
def test_the_total_never_falls(updates: list[tuple[float | None, float | None]]) -> None:
    counter = CarriedCounter()
    before = 0.0
    for raw, start_time in updates:
        counter.update(raw, start_time)
        assert (counter.total or 0.0) >= before
        before = counter.total or 0.0


def test_peak_outlives_the_sample_and_leaves_with_its_window() -> None:
    peak = Peak(60)
    for second, value in enumerate([0.2, 0.95, 0.4, 0.5, 0.3]):
        peak.add(value, second * NS)
    assert peak.highest(10, 4 * NS) == 0.95
    assert peak.highest(1, 4 * NS) == 0.5
    assert peak.highest(10, 11 * NS) == 0.95
    assert peak.highest(10, 12 * NS) == 0.5
    assert peak.highest(60, 12 * NS) == 0.95
    assert peak.highest(10, 100 * NS) is None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=80), st.integers(1, 20))
def test_peak_equals_the_maximum_of_the_window(values: list[float], window: int) -> None:
    peak = Peak(20)
    for second, value in enumerate(values):
        peak.add(value, second * NS)
        assert peak.highest(window, second * NS) == max(values[max(0, second - window) : second + 1])


def test_an_engine_carries_preemptions_and_peak() -> None:
    carry = EngineCarry(60)
    carry.update(EngineSample("0", kv_usage=0.9, preemptions_total=3), 100.0, 1 * NS)
    carry.update(EngineSample("0", kv_usage=None, preemptions_total=None), 100.0, 2 * NS)
    carry.update(EngineSample("0", kv_usage=0.1, preemptions_total=1), 200.0, 3 * NS)
    assert (carry.preemptions_total, carry.restarts) == (4, 1)
    assert carry.kv_peak.highest(60, 3 * NS) == 0.9


def test_a_server_without_start_time_or_preemptions_restarts_when_any_of_its_counters_falls() -> None:
    """llama.cpp's tells tokens alone."""
    carry = EngineCarry(60)
    pages = [(500.0, 40.0), (900.0, 90.0), (0.0, 0.0), (300.0, 20.0), (300.0, 5.0)]
    for second, (prompt, generated) in enumerate(pages):
        sample = EngineSample("0", prompt_tokens_total=prompt, generated_tokens_total=generated)
        carry.update(sample, None, second * NS)
    assert (carry.preemptions_total, carry.restarts) == (None, 2)


def test_a_restart_that_one_counter_shows_is_one_of_all() -> None:
    """Preemptions had come to as many again before the next page."""
    carry = EngineCarry(60)
    carry.update(EngineSample("0", preemptions_total=3, prompt_tokens_total=900), None, 1 * NS)
    carry.update(EngineSample("0", preemptions_total=3, prompt_tokens_total=100), None, 2 * NS)
    assert (carry.preemptions_total, carry.restarts) == (6, 1)
