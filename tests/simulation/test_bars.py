"""A fleet of fixed seeds, five runs of every row, against what it came to when that was last written down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.simulation import bars
from tests.simulation.judge import Figures
from tests.simulation.rows import ROWS, judged, row_of

ROUNDS = bars.TESTS.seeds // len(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_no_worse_than_it_was(name: str) -> None:
    figures = sum(map(judged, seeds_of(name)), start=Figures())
    assert figures.total or name in CALM, "runs without stalls prove nothing"
    worse = bars.worse(name, figures, bars.known(bars.TESTS)[name])
    assert not worse, worse


#: Rows in which prompts disturb nobody: all that is to be seen there is whether anything is made up.
CALM = frozenset(("vLLM, cache offloaded", "vLLM, decode side"))


def seeds_of(name: str) -> Iterator[int]:
    return (seed for seed in range(bars.TESTS.seeds) if row_of(seed) == name)


@pytest.mark.parametrize("fleet", bars.FLEETS, ids=lambda fleet: fleet.name)
def test_every_row_has_a_bar(fleet: bars.Fleet) -> None:
    assert list(bars.known(fleet)) == list(ROWS)


def test_each_row_has_as_many_seeds() -> None:
    assert {len(list(seeds_of(name))) for name in ROWS} == {ROUNDS}


def test_what_got_worse_is_said_in_words() -> None:
    figures = Figures()
    figures.seconds["prefill", "prefill"] = 8
    figures.seconds["prefill", "engine_pause"] = 2
    said = bars.worse("row", figures, bars.Bar(0.9, 0.9, 0.9, 0.8, 0.9))
    assert said == "row: recall 0.800, was 0.9: 2 s of prefill were engine_pause"
    assert not bars.worse("row", figures, bars.Bar(0.9, 0.8, 0.9, 0.8, 0.9))
