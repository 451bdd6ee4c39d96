"""Which shape under which fault a seed is a run of."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final, TypeAlias

from tests.simulation.faults import FAULTS, LONG_FAULTS, NONE, Fault
from tests.simulation.judge import Figures, judge
from tests.simulation.play import run
from tests.simulation.shapes import SCENES, SHAPES, Shape

Rows: TypeAlias = Mapping[str, tuple[Shape, Fault]]

_BY_NAME: Final = {shape.name: shape for shape in (*SHAPES, *SCENES)}
#: Every shape without a fault, then every fault on one of them.
ROWS: Final[Rows] = {shape.name: (shape, NONE) for shape in SHAPES} | {
    fault.name: (_BY_NAME[fault.shape], fault) for fault in FAULTS
}
#: Minutes, in which a critical alert can fire.
LONG_ROWS: Final[Rows] = {shape.name: (shape, NONE) for shape in SCENES} | {
    fault.name: (_BY_NAME[fault.shape], fault) for fault in LONG_FAULTS
}


def row_of(seed: int, rows: Rows = ROWS) -> str:
    """Seeds go round the rows."""
    return list(rows)[seed % len(rows)]


def judged(seed: int, rows: Rows = ROWS) -> Figures:
    """A run makes half a million objects and keeps most of them until it is over: collections would find nothing."""
    gc.disable()
    try:
        return judge(run(*rows[row_of(seed, rows)], seed))
    finally:
        gc.enable()


def by_row(seeds: Iterable[int], long_seeds: Iterable[int] = (), processes: int | None = None) -> dict[str, Figures]:
    """On all cores, or so many. Of no row is there nothing that no seed was for."""
    figures: dict[str, Figures] = {}
    with ProcessPoolExecutor(processes or len(os.sched_getaffinity(0))) as pool:
        for rows, each_seeds in ((ROWS, list(seeds)), (LONG_ROWS, list(long_seeds))):
            figures |= {row_of(seed, rows): Figures() for seed in sorted(each_seeds, key=lambda seed: seed % len(rows))}
            runs = pool.map(partial(_judged, rows is LONG_ROWS), each_seeds, chunksize=8)
            for seed, each in zip(each_seeds, runs, strict=True):
                figures[row_of(seed, rows)] += each
    return figures


def _judged(long: bool, seed: int) -> Figures:
    return judged(seed, LONG_ROWS if long else ROWS)
