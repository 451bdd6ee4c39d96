"""How late the loop is: a histogram small enough to be sent every second."""

from __future__ import annotations

from bisect import bisect_left

from prefillwatch.contract.buckets import LAG_BOUNDS


class LagHistogram:
    """Counts per bucket (not cumulative, one more than bounds) and the sum in seconds."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(LAG_BOUNDS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(LAG_BOUNDS, seconds)] += 1
        self.sum += seconds
