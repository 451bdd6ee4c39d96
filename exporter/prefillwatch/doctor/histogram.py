"""Histograms of Prometheus as numbers: differences of two, and quantiles with the error that their buckets leave."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value interpolated within a bucket. The true one lies between ``low`` and ``high`` (infinite in the last)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """``bounds`` are finite upper bounds, inclusive; ``counts`` are per bucket, with one more for what lies above."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float = 0.0

    @property
    def count(self) -> int:
        return round(math.fsum(self.counts))

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.count else None

    def plus(self, other: Histogram) -> Histogram:
        """Both together. Where the bounds differ, those that both have are kept."""
        bounds = tuple(sorted(set(self.bounds) & set(other.bounds)))
        counts = [a + b for a, b in zip(self._counts_at(bounds), other._counts_at(bounds), strict=True)]
        return Histogram(bounds, tuple(counts), self.sum + other.sum)

    def minus(self, earlier: Histogram) -> Histogram:
        """The samples since an earlier look at the same histogram."""
        counts = zip(self.counts, earlier._counts_at(self.bounds), strict=True)
        return Histogram(self.bounds, tuple(max(now - before, 0.0) for now, before in counts), self.sum - earlier.sum)

    def quantile(self, q: float) -> Estimate | None:
        """Linear within its bucket, as `histogram_quantile` of Prometheus does it. None without samples."""
        total = math.fsum(self.counts)
        if total <= 0:
            return None
        rank, below = q * total, 0.0
        for index, (count, upto) in enumerate(zip(self.counts, accumulate(self.counts), strict=True)):
            if count > 0 and upto >= rank - 1e-9:
                return self._within(index, (rank - below) / count)
            below = upto
        return self._within(len(self.bounds), 1.0)

    def longest(self) -> Estimate | None:
        """In which bucket the largest sample lies; its upper bound is the value, where there is one."""
        filled = [index for index, count in enumerate(self.counts) if count > 0]
        return self._within(filled[-1], 1.0) if filled else None

    def above(self, least: float) -> tuple[int, float]:
        """How many samples lie above the first bound that is not below ``least``, and that bound (infinite: none)."""
        for index, bound in enumerate(self.bounds):
            if bound >= least:
                return round(math.fsum(self.counts[index + 1 :])), bound
        return 0, math.inf

    def beyond(self, least: float) -> tuple[int, float]:
        """Samples that may be above ``least`` or not, since the bounds end below it; and what they are on average, at
        least."""
        if not self.counts[-1] or any(bound >= least for bound in self.bounds):
            return 0, 0.0
        count = self.counts[-1]
        below = math.fsum(number * bound for number, bound in zip(self.counts, self.bounds, strict=False))
        return round(count), max((self.sum - below) / count, self.bounds[-1] if self.bounds else 0.0)

    def _within(self, index: int, part: float) -> Estimate:
        low = self.bounds[index - 1] if index else 0.0
        if index >= len(self.bounds):
            return Estimate(low, low, math.inf)
        high = self.bounds[index]
        return Estimate(low + (high - low) * min(max(part, 0.0), 1.0), low, high)

    def _counts_at(self, bounds: tuple[float, ...]) -> list[float]:
        """Counts per bucket as they would be with these bounds; a bound that we do not have adds nothing."""
        known = dict(zip(self.bounds, accumulate(self.counts), strict=False))
        upto = list(accumulate((known.get(bound, 0.0) for bound in bounds), max))
        cumulative = [0.0, *upto, math.fsum(self.counts)]
        return [after - before for before, after in pairwise(cumulative)]


def from_cumulative(upto: Mapping[float, float], total_sum: float = 0.0) -> Histogram | None:
    """From the samples of a ``_bucket``: how many lie at or below each bound. None when there is none.

    A page that was cut off lacks the last of them; what is missing is taken to be empty.
    """
    bounds = tuple(sorted(bound for bound in upto if math.isfinite(bound)))
    if not upto:
        return None
    rising = list(accumulate((upto[bound] for bound in bounds), max))
    everything = max([*rising, upto.get(math.inf, 0.0)], default=0.0)
    counts = tuple(after - before for before, after in pairwise([0.0, *rising, everything]))
    return Histogram(bounds, counts, total_sum)


def together(histograms: Iterable[Histogram]) -> Histogram | None:
    """The sum of several histograms; None for none."""
    total: Histogram | None = None
    for histogram in histograms:
        total = histogram if total is None else total.plus(histogram)
    return total
