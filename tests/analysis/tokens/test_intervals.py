"""Tokens that a server hands on at once, by the usage of answers."""

from __future__ import annotations

import pytest

from prefillwatch.analysis.tokens import StreamIntervals


def interval_after(*answers: tuple[int, int]) -> float:
    """What is known after answers of one choice: (tokens, token events)."""
    intervals = StreamIntervals()
    for tokens, events in answers:
        intervals.answered(1, tokens, events, choices=1)
    return intervals.of(1)


def test_the_first_token_comes_alone_and_the_others_by_fours() -> None:
    assert interval_after((41, 11)) == 4.0
    assert interval_after((401, 101), (401, 101)) == 4.0


def test_the_shortest_answers_that_show_it() -> None:
    assert interval_after((8, 3)) == 3.5  # the last event has what was left
    assert interval_after((5, 2)) == 1.0
    assert interval_after((1, 1)) == 1.0


def test_choices_begin_for_themselves() -> None:
    intervals = StreamIntervals()
    intervals.answered(1, tokens=3 * 41, events=3 * 11, choices=3)
    assert intervals.of(1) == 4.0


def test_token_by_token_and_what_nothing_is_known_of() -> None:
    assert interval_after((100, 100)) == 1.0
    assert StreamIntervals().of(7) == 1.0


def test_events_without_tokens_are_no_interval() -> None:
    assert interval_after((3, 100)) == 1.0


def test_single_requests_may_ask_for_another_interval_but_most_answers_count() -> None:
    assert interval_after((101, 11), (100, 100), (100, 100)) == 1.0


def test_a_server_that_was_set_anew_is_known_by_its_last_answers() -> None:
    assert interval_after(*[(41, 11)] * 9, *[(41, 41)] * 4) == 4.0
    assert interval_after(*[(41, 11)] * 9, *[(41, 41)] * 5) == 1.0


def test_another_model_under_the_same_number_begins_anew() -> None:
    intervals = StreamIntervals()
    intervals.answered(1, 41, 11, choices=1)
    assert intervals.of(2) == 1.0
    intervals.forget_model(1)
    assert intervals.of(1) == pytest.approx(1.0)
