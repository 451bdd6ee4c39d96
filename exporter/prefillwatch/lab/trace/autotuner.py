"""Launches that are no work of the model: kernels tried out by Triton's autotuner.

The first time a kernel meets a new shape, each of its variants is run some dozens of times, and the cache is wiped in
between. In a trace that is the same kernel over and over without any other layer's work. It can be most of the launches
and nearly all of the time of a first long prompt, and says nothing about the second.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from prefillwatch.lab.trace.steps import Flags
from prefillwatch.lab.trace.timeline import Work

#: No model runs the same kernel of a layer this many times in a row.
FEWEST_REPEATS: Final = 16
#: What the autotuner runs between two tries.
_BETWEEN: Final = ("copy", "elementwise", "other")


def tuning_launches(work: Work) -> Flags:
    """Which rows are tries, with the wiping between them; the last of each run is taken for the model's own."""
    flags = np.zeros(len(work), np.bool_)
    if work.source != "gpu":
        return flags
    rows = np.flatnonzero(work.mask(family.kind not in _BETWEEN for family in work.families))
    if not len(rows):
        return flags
    names = work.names[rows]
    firsts = np.flatnonzero(np.r_[True, names[1:] != names[:-1]])
    sizes = np.diff(np.r_[firsts, len(rows)])
    for first, size in zip(
        firsts[sizes >= FEWEST_REPEATS].tolist(), sizes[sizes >= FEWEST_REPEATS].tolist(), strict=True
    ):
        flags[rows[first] : rows[first + size - 1]] = True
    return flags
