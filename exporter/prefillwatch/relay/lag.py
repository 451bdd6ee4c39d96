"""How late the loop is: a histogram small enough to be sent every second."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

#: Upper bounds in seconds.
BOUNDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class LagHistogram:
    """Counts per bucket (not cumulative, one more than bounds) and the sum in seconds."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds
