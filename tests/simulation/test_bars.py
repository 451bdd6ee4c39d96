"""A fleet of fixed seeds, five runs of every row, against what it came to when that was last written down."""

from __future__ import annotations

from typing import Final

import pytest
from tests.simulation import bars
from tests.simulation.judge import Figures
from tests.simulation.rows import LONG_ROWS, ROWS, Rows, judged, row_of

#: Rows in which prompts disturb nobody: all that is to be seen there is whether anything is made up.
CALM: Final = frozenset(("vLLM, cache offloaded", "vLLM, decode side"))


def seeds_of(name: str, seeds: range, rows: Rows) -> list[int]:
    return [seed for seed in seeds if row_of(seed, rows) == name]


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_no_worse_than_it_was(name: str) -> None:
    figures = sum(map(judged, seeds_of(name, bars.TESTS.seeds, ROWS)), start=Figures())
    assert figures.total or name in CALM, "runs without stalls prove nothing"
    worse = bars.worse(name, figures, bars.known(bars.TESTS)[name])
    assert not worse, worse


@pytest.mark.parametrize("name", LONG_ROWS)
def test_minutes_page_no_more_for_nothing_than_they_did(name: str) -> None:
    runs = (judged(seed, LONG_ROWS) for seed in seeds_of(name, bars.TESTS.long_seeds, LONG_ROWS))
    worse = bars.worse(name, sum(runs, start=Figures()), bars.known(bars.TESTS)[name])
    assert not worse, worse


def test_there_are_bars_of_the_tests() -> None:
    assert bars.TESTS in bars.written()


@pytest.mark.parametrize("fleet", bars.written(), ids=lambda fleet: fleet.name)
def test_every_row_has_a_bar(fleet: bars.Fleet) -> None:
    assert list(bars.known(fleet)) == [*ROWS, *LONG_ROWS]


def test_each_row_has_as_many_seeds() -> None:
    assert {len(seeds_of(name, bars.TESTS.seeds, ROWS)) for name in ROWS} == {bars.TESTS.rounds}


def test_what_got_worse_is_said_in_words() -> None:
    figures = Figures()
    figures.seconds["prefill", "prefill"] = 8
    figures.seconds["prefill", "engine_pause"] = 2
    said = bars.worse("row", figures, bars.Bar(0.9, 0.9, 0.9, 0.8, 0.9, 1.0, 1.0))
    assert said == "row: recall 0.800, was 0.9: 2 s of prefill were engine_pause"
    assert not bars.worse("row", figures, bars.Bar(0.9, 0.8, 0.9, 0.8, 0.9, 1.0, 1.0))


def test_a_page_for_nothing_is_worse_than_none() -> None:
    figures = Figures()
    figures.pages["StreamFreeze", "false"] = 1
    assert "no_false_pages 0.000, was 1.0" in bars.worse("row", figures, bars.Bar(*[1.0] * 7))
