"""What every row came to on two fleets of fixed seeds, so that a change that makes one worse is seen.

``bars.json`` says what must not get worse, not what would be good: that is in `goals`. **Bars are only raised.**
`python -m tests.simulation --raise` raises those that were surpassed; with ``--anew`` it writes all of them as they
are, for rows that are new or whose load was changed: those are other runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.simulation.judge import Figures
from tests.simulation.rows import LONG_ROWS, ROWS

FILE: Final = Path(__file__).with_name("bars.json")
ROUNDING: Final = 0.01  # what another version of Python or NumPy, or a change that makes nothing worse, may make of it


@dataclass(frozen=True)
class Fleet:
    """So many runs of each row, and of each that lasts for minutes; from seed 0 on."""

    name: str
    rounds: int
    long_rounds: int

    @property
    def seeds(self) -> range:
        return range(self.rounds * len(ROWS))

    @property
    def long_seeds(self) -> range:
        return range(self.long_rounds * len(LONG_ROWS))


TESTS: Final = Fleet("tests", 5, 1)
CHECK: Final = Fleet("check", 48, 4)
FLEETS: Final = {fleet.name: fleet for fleet in (TESTS, CHECK)}


class Bar(NamedTuple):
    precision: float
    recall: float
    right_names: float
    certainty: float  # share of the stall seconds that no wrong cause was named for
    attributed: float
    no_false_pages: float  # of what paged, or should have, what was right
    no_missed_pages: float


def reached(figures: Figures) -> Bar:
    return Bar(
        figures.precision,
        figures.recall,
        figures.right_names,
        1 - figures.falsely_certain,
        1 - figures.unattributed,
        1 - figures.pages_that("false"),
        1 - figures.pages_that("missed"),
    )


def rounded(bar: Bar) -> Bar:
    return Bar(*(math.floor(100 * max(0.0, each - ROUNDING)) / 100 for each in bar))


def written() -> list[Fleet]:
    """Those that there are bars of: of the larger one only where somebody had the minutes and a quiet machine."""
    return [FLEETS[name] for name in json.loads(FILE.read_text())]


def known(fleet: Fleet) -> dict[str, Bar]:
    return {name: Bar(*each) for name, each in json.loads(FILE.read_text())[fleet.name].items()}


def worse(name: str, figures: Figures, bar: Bar) -> str:
    """What got worse, in words; "" where nothing did."""
    below = [
        f"{what} {now:.3f}, was {least}"
        for what, now, least in zip(Bar._fields, reached(figures), bar, strict=True)
        if now < least
    ]
    return f"{name}: {'; '.join(below)}: {figures.told() or dict(figures.pages)}" if below else ""


def all_worse(fleet: Fleet, figures: Mapping[str, Figures]) -> Iterator[str]:
    bars = known(fleet)
    return filter(None, (worse(name, each, bars[name]) for name, each in figures.items()))


def write(fleet: Fleet, figures: Mapping[str, Figures], *, anew: bool) -> None:
    all_ = json.loads(FILE.read_text()) if FILE.exists() else {}
    before = {} if anew else all_.get(fleet.name, {})
    now = {name: rounded(reached(each)) for name, each in figures.items()}
    all_[fleet.name] = {
        name: [max(pair) for pair in zip(bar, before.get(name, bar), strict=True)] for name, bar in now.items()
    }
    FILE.write_text("{\n" + ",\n".join(_lines(all_)) + "\n}\n")


def _lines(fleets: Mapping[str, Mapping[str, Iterable[float]]]) -> Iterator[str]:
    """One row in a line, so that a change of one is one."""
    for fleet, rows in fleets.items():
        bars = ",\n".join(f"    {json.dumps(name)}: {json.dumps(bar)}" for name, bar in rows.items())
        yield f'  "{fleet}": {{\n{bars}\n  }}'
