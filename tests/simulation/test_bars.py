"""One fixed run of every row against bars that are what it came to when it was last written here, rounded down.

The bars say what must not get worse, not what would be good: that is in `goals`. **They may only be raised.** Whoever
makes a row better puts its new figures here (`python -m tests.simulation.test_bars` prints them); whoever has to lower
one has made the verdicts worse. A row that is new, or whose load was changed, is another run and gets bars of its own.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import pytest
from tests.simulation.judge import Figures
from tests.simulation.rows import ROWS, judged

SEED: Final = 1
ROUNDING: Final = 0.002  # what another version of Python or NumPy may make of it


class Bar(NamedTuple):
    precision: float
    recall: float
    right_names: float
    certainty: float  # share of the stall seconds that no wrong cause was named for
    attributed: float


BARS: Final[dict[str, Bar]] = {
    "vLLM, asynchronous": Bar(0.99, 0.99, 0.97, 0.99, 0.99),
    "vLLM, synchronous": Bar(0.99, 0.99, 0.99, 0.99, 0.99),
    "vLLM, unchunked": Bar(0.99, 0.99, 0.99, 0.99, 0.99),
    "vLLM, slices of 512": Bar(0.99, 0.99, 0.78, 0.99, 0.99),
    "vLLM, prefix caching": Bar(0.99, 0.99, 0.93, 0.99, 0.99),
    "vLLM, preemption": Bar(0.99, 0.99, 0.98, 0.99, 0.99),
    "vLLM, stream interval 4": Bar(0.99, 0.28, 0.94, 0.99, 0.28),
    "vLLM, clients leave": Bar(0.99, 0.99, 0.91, 0.99, 0.99),
    "vLLM, clients leave, goes on": Bar(0.99, 0.84, 0.88, 0.94, 0.89),
    "vLLM, n = 3": Bar(0.99, 0.99, 0.99, 0.99, 0.99),
    "vLLM, JSON answers": Bar(0.99, 0.99, 0.99, 0.99, 0.99),
    "vLLM, two ranks": Bar(0.99, 0.65, 0.99, 0.99, 0.65),
    "llama.cpp, slots": Bar(0.99, 0.99, 0.8, 0.99, 0.99),
    "llama.cpp, clients leave": Bar(0.99, 0.99, 0.99, 0.99, 0.99),
    "SGLang, prefill first": Bar(0.99, 0.99, 0.99, 0.99, 0.99),
    "engine stopped": Bar(0.99, 0.99, 0.97, 0.99, 0.92),
    "engine stopped, no page": Bar(0.99, 0.96, 0.88, 0.97, 0.82),
    "host stopped": Bar(0.99, 0.99, 0.97, 0.99, 0.83),
    "API server stopped": Bar(0.99, 0.99, 0.92, 0.9, 0.99),
    "slow readers": Bar(0.99, 0.99, 0.99, 0.99, 0.99),
    "our own lag": Bar(0.99, 0.99, 0.97, 0.99, 0.99),
    "lost tap packets": Bar(0.99, 0.99, 0.9, 0.99, 0.99),
    "hop that buffers by size": Bar(0.99, 0.99, 0.99, 0.64, 0.99),
    "hop that buffers by time": Bar(0.0, 0.99, 0.99, 0.27, 0.96),
    "hop that buffers, spread bursts": Bar(0.0, 0.99, 0.99, 0.0, 0.99),
}


def reached(figures: Figures) -> Bar:
    return Bar(
        figures.precision,
        figures.recall,
        figures.right_names,
        1 - figures.falsely_certain,
        1 - figures.unattributed,
    )


def bar_of(figures: Figures) -> Bar:
    return Bar(*(math.floor(100 * max(0.0, each - ROUNDING)) / 100 for each in reached(figures)))


def test_every_row_has_a_bar() -> None:
    assert set(BARS) == set(ROWS)


@pytest.mark.parametrize("name", BARS)
def test_a_row_is_no_worse_than_it_was(name: str) -> None:
    figures = judged(name, SEED)
    assert figures.total > 1.0, "a run without stalls proves nothing"
    worse = [
        f"{what} {now:.3f}, was {least}"
        for what, now, least in zip(Bar._fields, reached(figures), BARS[name], strict=True)
        if now < least
    ]
    assert not worse, f"{name}: {'; '.join(worse)}: {dict(figures.seconds)}"


if __name__ == "__main__":
    for name in ROWS:
        print(f'    "{name}": Bar{tuple(bar_of(judged(name, SEED)))},', flush=True)
