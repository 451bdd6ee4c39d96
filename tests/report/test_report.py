"""Quantities, sentences and tables as every report has them."""

from __future__ import annotations

import pytest

from prefillwatch.report import aligned, counted, duration, listed, share, text_table, wrapped


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.0000214, "21.4 µs"),
        (0.0009996, "1 ms"),
        (0.0213, "21.3 ms"),
        (0.01, "10 ms"),
        (0.345, "345 ms"),
        (0.9996, "1 s"),
        (2.484, "2.48 s"),
        (61.2, "61.2 s"),
        (119.7, "2 min"),
        (345.0, "5.75 min"),
        (4811.0, "80.2 min"),
        (36000.0, "10 h"),
        (3.6e7, "10,000 h"),
        (float("inf"), "without end"),
        (-0.02, "-20 ms"),
    ],
)
def test_durations_have_three_figures_at_most(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0207, "21 ms"), (0.345, "345 ms"), (2.48, "2.5 s"), (0.0095, "9.5 ms")]
)
def test_estimates_have_two(seconds: float, text: str) -> None:
    assert duration(seconds, 2) == text


@pytest.mark.parametrize(
    ("part", "text"),
    [(0, "0 %"), (0.4, "< 0.1 %"), (8, "0.8 %"), (99.6, "10 %"), (123, "12 %"), (None, "–")],
)
def test_shares(part: float | None, text: str) -> None:
    assert share(part, 1000) == text


def test_a_share_of_nothing_is_none() -> None:
    assert share(5, 0) == "0 %"


def test_things_are_counted_and_listed() -> None:
    assert [counted(number, "gap") for number in (0, 1, 1.2, 1200)] == ["0 gaps", "1 gap", "1 gap", "1,200 gaps"]
    assert counted(2, "request body", "request bodies") == "2 request bodies"
    assert [listed("abc"[:number]) for number in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_names_stand_left_and_figures_right() -> None:
    assert text_table(("size", "p99"), [("1", "20 ms"), ("10,000", "3 ms")], "  ") == [
        "  size      p99",
        "  1       20 ms",
        "  10,000   3 ms",
    ]
    assert aligned([("a", "1"), ("long", "2")]) == ["  a     1", "  long  2"]


def test_a_figure_is_not_parted_from_its_unit() -> None:
    text = "the longest of all of them took 345 ms, 12 % of it idle"
    assert wrapped(text, 40, "- ") == ["- the longest of all of them took", "  345 ms, 12 % of it idle"]
    assert wrapped("the longest of all of them took 99 345 ms", 40) == ["the longest of all of them took 99", "345 ms"]
    assert wrapped("", 40, "- ") == ["-"]
