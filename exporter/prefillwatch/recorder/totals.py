"""Gaps of a whole recording by population, where the metrics have windows of some minutes."""

from __future__ import annotations

from typing import Final

import numpy as np

from prefillwatch.analysis.arrays import FloatArray
from prefillwatch.analysis.tokens import LogBuckets, quantile_rank
from prefillwatch.contract.buckets import POPULATIONS

_BUCKETS: Final = LogBuckets(1e-5, 3600.0)


class GapTotals:
    """Quantiles with a relative error below 1 %."""

    def __init__(self) -> None:
        self._counts = {population: np.zeros(len(_BUCKETS), np.int64) for population in POPULATIONS}
        self._longest = dict.fromkeys(POPULATIONS, 0.0)

    def add(self, seconds: FloatArray, prefill: bool) -> None:
        """``prefill``: a prompt was in service during these gaps."""
        if not len(seconds):
            return
        for population in ("all", "prefill" if prefill else "clear"):
            np.add.at(self._counts[population], _BUCKETS.index(seconds), 1)
            self._longest[population] = max(self._longest[population], float(seconds.max()))

    def count(self, population: str) -> int:
        return int(self._counts[population].sum())

    def longest(self, population: str) -> float | None:
        """Seconds."""
        return self._longest[population] if self.count(population) else None

    def quantile(self, population: str, q: float) -> float | None:
        """Seconds; None where there are no gaps."""
        counts = self._counts[population]
        total = int(counts.sum())
        if not total:
            return None
        index = int(np.searchsorted(np.cumsum(counts), quantile_rank(q, total)))
        return min(float(_BUCKETS.estimates[index]), self._longest[population])
