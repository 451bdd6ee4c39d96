"""Which shape under which fault a seed is a run of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tests.simulation.faults import FAULTS, NONE, Fault
from tests.simulation.judge import Figures, judge
from tests.simulation.play import run
from tests.simulation.shapes import SHAPES, Shape

#: Every shape without a fault, then every fault on the usual shape.
ROWS: Final[dict[str, tuple[Shape, Fault]]] = {shape.name: (shape, NONE) for shape in SHAPES} | {
    fault.name: (SHAPES[0], fault) for fault in FAULTS
}


def row_of(seed: int) -> str:
    """Seeds go round the rows."""
    return list(ROWS)[seed % len(ROWS)]


def judged(name: str, seed: int) -> Figures:
    return judge(run(*ROWS[name], seed))


def by_row(seeds: Iterable[int]) -> dict[str, Figures]:
    figures: dict[str, Figures] = {name: Figures() for name in ROWS}
    for seed in seeds:
        figures[row_of(seed)] += judged(row_of(seed), seed)
    return figures
