"""Quantiles over sliding windows of time, with a bounded relative error.

Values are counted in logarithmic buckets, as in DDSketch (Masson, Rim, Lee: "DDSketch: A Fast and Fully-Mergeable
Quantile Sketch with Relative-Error Guarantees", VLDB 2019). With gamma = (1 + a) / (1 - a), bucket i holds the values
in (gamma^(i-1), gamma^i], and its estimate 2 gamma^i / (gamma + 1) is off by at most the fraction a from any of them.
Bucket counts are plain integers, so a slot of time that leaves a window is subtracted exactly and leaves no rest
behind.

One definition of a quantile everywhere: the q-quantile of n values is the smallest value whose rank is at least q * n
(ranks count from 1). It is always one of the values and never interpolated.

Time is cut into slots of one second. A window of w seconds holds the running slot and the w - 1 before it, so a value
stays for at least w - 1 seconds and never longer than w.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from prefillwatch.analysis.arrays import FloatArray, IntArray
from prefillwatch.contract.buckets import WINDOWS_S
from prefillwatch.units import NS

#: Guaranteed relative error of a quantile; a little below the promised 1 % to leave room for rounding.
RELATIVE_ERROR: Final = 0.0095
_SLOT_NS: Final = NS
#: Of so few values each is sorted into its bucket by itself: numpy takes longer to set out.
_FEW: Final = 16
#: A slot stores bucket numbers in 16 bits.
_MOST_BUCKETS: Final = 1 << 16


def quantile_rank(q: float, n: int) -> int:
    """The rank, from 1, of the q-quantile among n values: the smallest integer >= q * n, at least 1."""
    # 0.07 * 100 is a hair above 7 in binary; without the allowance the rank would be 8.
    return min(n, max(1, math.ceil(q * n * (1 - 1e-12))))


class LogBuckets:
    """The bucket bounds between ``lowest`` and ``highest``.

    Values below ``lowest`` are counted as ``lowest``; values above ``highest`` share the last bucket.
    """

    __slots__ = ("_first", "_inverse_log_gamma", "_lowest", "estimates")

    def __init__(self, lowest: float, highest: float, error: float = RELATIVE_ERROR) -> None:
        if not 0 < lowest < highest or not 0 < error < 1:
            raise ValueError(f"buckets need 0 < lowest < highest and 0 < error < 1, not {lowest}, {highest}, {error}")
        gamma = (1 + error) / (1 - error)
        self._lowest = lowest
        self._inverse_log_gamma = 1 / math.log(gamma)
        self._first = self._number(lowest)
        count = self._number(highest) - self._first + 2
        if count > _MOST_BUCKETS:
            raise ValueError(f"{lowest} to {highest} takes {count} buckets, more than {_MOST_BUCKETS}")
        #: What a quantile in each bucket is reported as; the last one stands for everything above ``highest``.
        self.estimates: FloatArray = (
            2 * gamma ** np.arange(self._first, self._first + count, dtype=np.float64) / (gamma + 1)
        )

    def _number(self, value: float) -> int:
        return math.ceil(math.log(value) * self._inverse_log_gamma)

    def __len__(self) -> int:
        return len(self.estimates)

    def index(self, values: FloatArray) -> npt.NDArray[np.intp]:
        """The bucket of each value."""
        numbers = np.ceil(np.log(np.maximum(values, self._lowest)) * self._inverse_log_gamma)
        indices = numbers.astype(np.intp) - self._first
        return np.minimum(indices, len(self.estimates) - 1)

    def index_one(self, value: float) -> int:
        return min(self._number(max(value, self._lowest)) - self._first, len(self.estimates) - 1)


@functools.lru_cache(maxsize=8)
def _shared_buckets(lowest: float, highest: float) -> LogBuckets:
    return LogBuckets(lowest, highest)


class _Slot(NamedTuple):
    """One closed second: only the buckets that were hit."""

    number: int
    buckets: npt.NDArray[np.uint16]
    counts: npt.NDArray[np.int32]
    total: int
    maximum: float


class _Window:
    """Dense counts of the closed slots that one window covers."""

    __slots__ = ("counts", "length", "slots", "total")

    def __init__(self, length: int, buckets: int) -> None:
        self.length = length
        self.counts: npt.NDArray[np.int32] = np.zeros(buckets, dtype=np.int32)
        self.slots: deque[_Slot] = deque()
        self.total = 0

    def append(self, slot: _Slot) -> None:
        self.slots.append(slot)
        self.counts[slot.buckets] += slot.counts
        self.total += slot.total

    def expire(self, running: int) -> None:
        while self.slots and self.slots[0].number <= running - self.length:
            slot = self.slots.popleft()
            self.counts[slot.buckets] -= slot.counts
            self.total -= slot.total

    def maximum(self) -> float:
        return max((slot.maximum for slot in self.slots), default=-math.inf)


class SlidingWindows:
    """Counts, quantiles and maxima of a stream of values over several sliding windows at once.

    Values are seconds (or any positive unit; set ``lowest`` and ``highest`` to the range in which the error bound
    must hold). ``now_ns`` is a monotonic clock. A time older than the newest one seen is taken for the newest.
    """

    __slots__ = ("_buckets", "_open", "_open_max", "_open_total", "_running", "_single", "_windows")

    def __init__(
        self,
        windows_s: Iterable[int] = WINDOWS_S,
        *,
        lowest: float = 10e-6,
        highest: float = 3600.0,
    ) -> None:
        self._buckets = _shared_buckets(lowest, highest)
        size = len(self._buckets)
        lengths = tuple(windows_s)
        if not lengths or min(lengths) < 1:
            raise ValueError(f"windows must be whole seconds of at least 1, not {lengths!r}")
        self._windows = {length: _Window(length, size) for length in lengths}
        self._open: npt.NDArray[np.int32] = np.zeros(size, dtype=np.int32)
        self._open_total = 0
        self._open_max = -math.inf
        self._single: list[float] = []  # of the open slot, and not in its counts yet
        self._running: int | None = None

    @property
    def windows_s(self) -> tuple[int, ...]:
        return tuple(self._windows)

    def add(self, value: float, now_ns: int) -> None:
        if now_ns // _SLOT_NS != self._running:
            self.advance(now_ns)
        self._single.append(value)

    def add_many(self, values: npt.NDArray[np.floating[Any]] | list[float], now_ns: int) -> None:
        """Add all values at once; they are finite."""
        self.advance(now_ns)
        self._add(np.asarray(values, dtype=np.float64))

    def _add(self, array: npt.NDArray[np.float64]) -> None:
        if not array.size:
            return
        self._open += np.bincount(self._buckets.index(array), minlength=len(self._open))
        self._open_total += array.size
        self._open_max = max(self._open_max, float(array.max()))

    def advance(self, now_ns: int) -> None:
        """Let go of what is too old at ``now_ns``. Adding does this too; an idle stream needs it before it is read."""
        slot = now_ns // _SLOT_NS
        if self._running is None:
            self._running = slot
        elif slot > self._running:
            self._close(self._running)
            self._running = slot
            for window in self._windows.values():
                window.expire(slot)

    def _count_singles(self) -> None:
        """Together they take a tenth of the time that each would take by itself."""
        if len(self._single) > _FEW:
            self._add(np.array(self._single))
        else:
            for value in self._single:
                self._open[self._buckets.index_one(value)] += 1
            self._open_total += len(self._single)
            self._open_max = max(self._open_max, *self._single)
        self._single.clear()

    def _close(self, number: int) -> None:
        if self._single:
            self._count_singles()
        if not self._open_total:
            return
        hit = np.flatnonzero(self._open)
        closed = _Slot(number, hit.astype(np.uint16), self._open[hit], self._open_total, self._open_max)
        for window in self._windows.values():
            window.append(closed)
        self._open[hit] = 0
        self._open_total = 0
        self._open_max = -math.inf

    def count(self, window_s: int) -> int:
        """How many values the window holds."""
        if self._single:
            self._count_singles()
        return self._windows[window_s].total + self._open_total

    def maximum(self, window_s: int) -> float | None:
        """The largest value in the window, exactly; None when it is empty."""
        if self._single:
            self._count_singles()
        largest = max(self._windows[window_s].maximum(), self._open_max)
        return None if largest == -math.inf else largest

    def quantile(self, q: float, window_s: int) -> float | None:
        """The q-quantile (0 < q <= 1) of the window within 1 %; None when it is empty, never 0 in its place."""
        return self.quantiles((q,), window_s)[0]

    def quantiles(self, qs: Iterable[float], window_s: int) -> list[float | None]:
        """Several quantiles for the price of one."""
        largest = self.maximum(window_s)
        if largest is None:
            return [None for _ in qs]
        cumulative = np.cumsum(self._windows[window_s].counts + self._open)
        return [self._at_rank(cumulative, quantile_rank(q, self.count(window_s)), largest) for q in qs]

    def _at_rank(self, cumulative: IntArray, rank: int, largest: float) -> float:
        if rank == cumulative[-1]:
            return largest
        bucket = int(np.searchsorted(cumulative, rank))
        if bucket == len(self._buckets) - 1:
            # Beyond the range nothing is known but that it is large: say the most, which is exact for one such value.
            return largest
        return min(float(self._buckets.estimates[bucket]), largest)

    def counts(self, window_s: int) -> npt.NDArray[np.int32]:
        """Values of the window by bucket; the buckets of equal ranges are the same."""
        if self._single:
            self._count_singles()
        return self._windows[window_s].counts + self._open


def quantile_of_all(parts: Iterable[SlidingWindows], q: float, window_s: int) -> float | None:
    """The q-quantile of what several of them hold together, within 1 %; None when they are all empty.

    They must have the same range.
    """
    filled = [part for part in parts if part.count(window_s)]
    if not filled:
        return None
    total = sum((part.counts(window_s).astype(np.int64) for part in filled[1:]), filled[0].counts(window_s))
    largest = max(part.maximum(window_s) or 0.0 for part in filled)
    cumulative: IntArray = np.cumsum(total, dtype=np.int64)
    return filled[0]._at_rank(cumulative, quantile_rank(q, int(cumulative[-1])), largest)
