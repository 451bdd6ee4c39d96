"""Figures and tables in text."""

from __future__ import annotations

import pytest

from prefillwatch.lab.report.table import duration, share, text_table


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.0000214, "21.4 µs"),
        (0.0213, "21.3 ms"),
        (0.345, "345 ms"),
        (0.9996, "1.00 s"),
        (2.484, "2.48 s"),
        (61.2, "61.2 s"),
        (1234.0, "1,234 s"),
    ],
)
def test_durations_have_three_figures(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("part", "text"), [(0, "0.0 %"), (8, "0.8 %"), (123, "12 %")])
def test_shares(part: int, text: str) -> None:
    assert share(part, 1000) == text
    assert share(part, 0) == "0.0 %"


def test_names_stand_left_and_figures_right() -> None:
    assert text_table(("size", "p99"), [("1", "20 ms"), ("10,000", "3 ms")]) == [
        "  size      p99",
        "  1       20 ms",
        "  10,000   3 ms",
    ]
