"""Which settings are worth a choice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.lab.sweep.rows import failed, mix, row

from prefillwatch.lab.sweep.figures import Outcome
from prefillwatch.lab.sweep.pareto import beaten_by, goals, pareto_front

SMALL, LARGE, WHOLE = row("small", 0.15, 8.0, 200), row("large", 0.35, 5.7, 210), row("whole", 0.83, 5.0, 212)


def labels(*outcomes: Outcome) -> list[str]:
    return [outcome.label for outcome in pareto_front(outcomes)]


def test_settings_that_trade_one_goal_for_another_are_all_on_the_front() -> None:
    assert labels(SMALL, LARGE, WHOLE) == ["small", "large", "whole"]


def test_a_setting_that_is_worse_in_everything_is_off_it_and_beaten_by_name() -> None:
    worse = row("worse", 0.9, 5.8, 190)
    assert labels(SMALL, LARGE, WHOLE, worse) == ["small", "large", "whole"]
    assert beaten_by(worse, [SMALL, LARGE, WHOLE, worse]) is LARGE
    assert beaten_by(LARGE, [SMALL, LARGE, WHOLE, worse]) is None


def test_differences_that_repeating_would_make_too_are_none() -> None:
    again = row("again", 0.3501, 5.701, 210.1)
    assert labels(LARGE, again) == ["large", "again"]


def test_a_setting_that_failed_is_on_no_front() -> None:
    assert labels(failed("broken"), SMALL) == ["small"]
    assert labels(failed("broken")) == []
    assert goals(failed("broken")) is None


def test_without_a_mix_two_goals_are_left() -> None:
    assert labels(row("a", 0.1, 2.0), row("b", 0.2, 1.0), row("c", 0.2, 2.0)) == ["a", "b"]


def test_without_a_probe_the_readers_of_the_mix_stand_for_the_victims() -> None:
    only_mix = Outcome(flags=(), label="m", mix=mix(100.0, gaps=0.05, first_token=0.5))
    found = goals(only_mix)
    assert found is not None
    assert (found.gap, found.first_token, found.rate) == (0.05, 0.5, 100.0)


@given(st.lists(st.tuples(*[st.floats(0.001, 100)] * 3), min_size=1, max_size=12))
def test_the_front_is_never_empty_and_whoever_is_off_it_is_beaten(places: list[tuple[float, float, float]]) -> None:
    outcomes = [row(str(i), *place) for i, place in enumerate(places)]
    front = pareto_front(outcomes)
    assert front
    assert all((beaten_by(each, outcomes) is None) == (each in front) for each in outcomes)
