"""Exponential histograms, as OpenTelemetry's data model has them: buckets whose bounds are powers of one base.

Bucket ``i`` of scale ``s`` holds the values in (2 ** (i / 2 ** s), 2 ** ((i + 1) / 2 ** s)]; see "ExponentialHistogram"
in https://opentelemetry.io/docs/specs/otel/metrics/data-model. A value is put there when it is seen: buckets with other
bounds could only be turned into such ones by guessing where in them the values were.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import frexp, isfinite
from typing import Final

import numpy as np
import numpy.typing as npt

#: Eight buckets for each doubling: the middle of one is within 4.5 % of all that it holds. Schema 3 in Prometheus.
SCALE: Final = 3
_PER_DOUBLING: Final = 2**SCALE
#: What a doubling is cut at, the inclusive upper bounds but for the last.
_CUTS: Final = tuple(2 ** (step / _PER_DOUBLING) for step in range(_PER_DOUBLING))
_CUTS_ARRAY: Final = np.array(_CUTS)
#: Doublings that are kept apart: from a millionth, below which we measure nothing, to two thousand million.
_LOWEST: Final = -20
_HIGHEST: Final = 31
_OFFSET: Final = _LOWEST * _PER_DOUBLING
_BUCKETS: Final = (_HIGHEST - _LOWEST) * _PER_DOUBLING


@dataclass(frozen=True, slots=True)
class ExponentialCounts:
    """A copy. ``counts`` are those of the buckets from number ``offset`` on."""

    offset: int
    counts: list[int]
    zeros: int
    total: float

    @property
    def count(self) -> int:
        return self.zeros + sum(self.counts)


class ExponentialBuckets:
    """The values of one label set. What is below all buckets counts as zero, what is above as in the last."""

    __slots__ = ("_counts", "total", "zeros")

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, np.int64)
        self.zeros = 0
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Values that are not finite are left out."""
        if not isfinite(value):
            return
        self.total += value * times
        place = bucket_of(value) - _OFFSET if value > 0 else -1
        if place < 0:
            self.zeros += times
        else:
            self._counts[min(place, _BUCKETS - 1)] += times

    def observe_many(self, values: npt.NDArray[np.float64]) -> None:
        """They are all finite."""
        mantissa, exponent = np.frexp(values)
        steps = _CUTS_ARRAY.searchsorted(2 * mantissa, side="left") - 1
        places = (exponent.astype(np.int64) - 1) * _PER_DOUBLING + steps - _OFFSET
        seen = (values > 0) & (places >= 0)
        self.zeros += len(values) - int(np.count_nonzero(seen))
        self._counts += np.bincount(np.minimum(places[seen], _BUCKETS - 1), minlength=_BUCKETS)
        self.total += float(values.sum())

    def copy(self) -> ExponentialCounts:
        filled = np.flatnonzero(self._counts)
        if not len(filled):
            return ExponentialCounts(0, [], self.zeros, self.total)
        first, last = int(filled[0]), int(filled[-1])
        return ExponentialCounts(first + _OFFSET, self._counts[first : last + 1].tolist(), self.zeros, self.total)


def bucket_of(value: float) -> int:
    """The number of the bucket of a positive value. By exponent and table instead of a logarithm, whose rounding would
    put bounds into the wrong one."""
    mantissa, exponent = frexp(value)
    return (exponent - 1) * _PER_DOUBLING + bisect_left(_CUTS, 2 * mantissa) - 1
