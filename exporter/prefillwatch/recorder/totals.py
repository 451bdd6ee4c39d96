"""Gaps of a whole recording by population, where the metrics have windows of some minutes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from prefillwatch.analysis.arrays import FloatArray
from prefillwatch.analysis.requests import NONE
from prefillwatch.analysis.tokens import LogBuckets, quantile_rank
from prefillwatch.contract.buckets import POPULATIONS
from prefillwatch.observer.publish import Publisher

_BUCKETS: Final = LogBuckets(1e-5, 3600.0)


class GapTotals:
    """Quantiles with a relative error below 1 %."""

    def __init__(self) -> None:
        self._counts = {population: np.zeros(len(_BUCKETS), np.int64) for population in POPULATIONS}
        self._longest = dict.fromkeys(POPULATIONS, 0.0)

    def add(self, seconds: FloatArray, *, prefill: bool) -> None:
        """``prefill``: a prompt was in service during these gaps."""
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


class TotallingPublisher(Publisher):
    """Keeps the totals beside the metrics."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.totals = GapTotals()

    def gaps(self, model: int, concurrent_bucket: int, seconds: FloatArray) -> None:
        super().gaps(model, concurrent_bucket, seconds)
        if len(seconds):
            self.totals.add(seconds, prefill=concurrent_bucket != NONE)
