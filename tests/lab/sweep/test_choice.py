"""The setting for a promise, and what it costs."""

from __future__ import annotations

from tests.lab.sweep.rows import failed, row

from prefillwatch.lab.sweep.choice import Choice, Slo, choose

SMALL, LARGE, WHOLE = row("small", 0.15, 8.0, 190), row("large", 0.35, 5.7, 210), row("whole", 0.83, 5.0, 212)
ALL = (SMALL, LARGE, WHOLE, failed("broken"))


def chosen(slo: Slo) -> Choice:
    choice = choose(ALL, slo)
    assert choice is not None
    return choice


def test_of_the_settings_that_meet_it_the_one_with_the_earliest_first_tokens() -> None:
    choice = chosen(Slo(gap_seconds=0.4))
    assert (choice.setting.label, choice.met, choice.meeting) == ("large", True, ("small", "large"))


def test_a_tighter_promise_costs_first_tokens_and_throughput() -> None:
    choice = chosen(Slo(gap_seconds=0.2))
    assert choice.setting.label == "small"
    assert [(cost.goal, cost.own, cost.best, cost.label) for cost in choice.costs] == [
        ("first_token", 8.0, 5.0, "whole"),
        ("rate", 190, 212, "whole"),
    ]


def test_what_is_best_in_everything_else_costs_gaps() -> None:
    choice = chosen(Slo(gap_seconds=1.0))
    assert choice.setting.label == "whole"
    assert [cost.goal for cost in choice.costs] == ["gap"]


def test_where_none_meets_it_the_nearest() -> None:
    choice = chosen(Slo(gap_seconds=0.05))
    assert (choice.setting.label, choice.met, choice.meeting) == ("small", False, ())


def test_both_promises_have_to_be_kept() -> None:
    assert chosen(Slo(gap_seconds=0.4, first_token_seconds=0.1)).met is False
    assert chosen(Slo(gap_seconds=0.4, first_token_seconds=0.6)).met is True


def test_the_population_decides() -> None:
    assert chosen(Slo(gap_seconds=0.06, over="mix")).met is True
    assert chosen(Slo(gap_seconds=0.06, over="window")).met is False


def test_nothing_measured_nothing_chosen() -> None:
    assert choose((failed("broken"),), Slo(gap_seconds=1.0)) is None
    assert choose((row("a", 0.1, 1.0),), Slo(gap_seconds=1.0, over="mix")) is None, "there was no mix"
