"""Which shape under which fault a seed is a run of."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from tests.simulation.faults import FAULTS, NONE, Fault
from tests.simulation.judge import Figures, judge
from tests.simulation.play import run
from tests.simulation.shapes import SHAPES, Shape

_BY_NAME: Final = {shape.name: shape for shape in SHAPES}
#: Every shape without a fault, then every fault on one of them.
ROWS: Final[dict[str, tuple[Shape, Fault]]] = {shape.name: (shape, NONE) for shape in SHAPES} | {
    fault.name: (_BY_NAME[fault.shape], fault) for fault in FAULTS
}


def row_of(seed: int) -> str:
    """Seeds go round the rows."""
    return list(ROWS)[seed % len(ROWS)]


def judged(seed: int) -> Figures:
    return judge(run(*ROWS[row_of(seed)], seed))


def by_row(seeds: Iterable[int], processes: int | None = None) -> dict[str, Figures]:
    """On all cores, or so many."""
    seeds = list(seeds)
    figures: dict[str, Figures] = {name: Figures() for name in ROWS}
    with ProcessPoolExecutor(processes or len(os.sched_getaffinity(0))) as pool:
        for seed, each in zip(seeds, pool.map(judged, seeds, chunksize=8), strict=True):
            figures[row_of(seed)] += each
    return figures
