"""Where measured values are kept until they are scraped: counters, gauges and histograms of one table.

Threads: a registry has no locks. Everything here runs on the one thread that feeds it (the observer's event loop),
``Registry.snapshot`` included; a snapshot is a copy and can be rendered by any other thread. Copying takes about a
microsecond per label set, so the loop is not held up by a scrape.

Why not prometheus_client's own metrics: with a lock and a scan over the bounds per call they cost about 1 µs per
token, and they cannot take a thousand values at once.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from prefillwatch.export.exponential import ExponentialBuckets, ExponentialCounts
from prefillwatch.export.spec import Kind, Spec
from prefillwatch.export.table import EXPOSED_SERIES, LABEL_SETS_REFUSED, TABLE

#: Label values in the order of ``Spec.labels``.
Labels = tuple[str, ...]

#: A metric takes no more label sets than this. It is far above what bounded labels can make: the last line of defence
#: against a label without a bound.
MAX_LABEL_SETS: Final = 4096

Child = TypeVar("Child")


class _Family(Generic[Child]):
    """The label sets of one metric."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.refused = 0
        self._children: dict[Labels, Child] = {}

    def __len__(self) -> int:
        return len(self._children)

    def __contains__(self, labels: Labels) -> bool:
        return labels in self._children

    def remove(self, labels: Labels) -> None:
        """Forget one label set; no error when there is none."""
        self._children.pop(labels, None)

    def clear(self) -> None:
        self._children.clear()

    def remove_where(self, label: str, value: str) -> None:
        """Forget every label set in which ``label`` has this value."""
        position = self.spec.label_names.index(label)
        for labels in [labels for labels in self._children if labels[position] == value]:
            del self._children[labels]

    def _admit(self, labels: Labels) -> bool:
        """Whether a new label set may be kept. Raises ValueError when it does not fit the labels of the metric."""
        if len(labels) != len(self.spec.labels) or not all(isinstance(value, str) for value in labels):
            raise ValueError(f"{self.spec.name} has the labels {self.spec.label_names}, not values {labels!r}")
        if len(self._children) < MAX_LABEL_SETS:
            return True
        self.refused += 1
        return False


class Counter(_Family[float]):
    """Totals that only rise."""

    def add(self, labels: Labels = (), amount: float = 1.0) -> None:
        """Raises ValueError for an amount below zero. Zero makes the series appear."""
        if not amount >= 0.0:
            raise ValueError(f"{self.spec.name}: a counter cannot change by {amount}")
        if labels in self._children or self._admit(labels):
            self._children[labels] = self._children.get(labels, 0.0) + amount

    def set_total(self, labels: Labels, total: float) -> None:
        """For totals that are kept elsewhere. A total below the one before is ignored: a counter never falls."""
        if labels in self._children or self._admit(labels):
            self._children[labels] = max(self._children.get(labels, 0.0), total)

    def replace_totals(self, totals: Mapping[Labels, float]) -> None:
        """For totals that are kept elsewhere: these are all there are, and every other label set vanishes."""
        for labels in self._children.keys() - totals.keys():
            del self._children[labels]
        for labels, total in totals.items():
            self.set_total(labels, total)

    def value(self, labels: Labels = ()) -> float:
        return self._children[labels]


class Gauge(_Family[float]):
    """Values of now. One that is not known is absent, which None and NaN both mean here; it is never shown as 0."""

    def set(self, labels: Labels, value: float | None) -> None:
        if value is None or value != value:
            self._children.pop(labels, None)
        elif labels in self._children or self._admit(labels):
            self._children[labels] = float(value)

    def replace(self, values: Mapping[Labels, float | None]) -> None:
        """These are all the values there are; every other label set vanishes."""
        self._children.clear()
        for labels, value in values.items():
            self.set(labels, value)

    def value(self, labels: Labels = ()) -> float:
        return self._children[labels]


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One value of a bucket, and what it was of. ``at_s`` is Unix time in seconds; ``span_id`` is the one in the trace
    of its labels, which is more than there is room for on a page."""

    value: float
    labels: dict[str, str]
    at_s: float
    span_id: str = ""


class HistogramChild:
    """The buckets of one label set. Keep it at hand where many single values go to the same labels."""

    __slots__ = ("_bounds", "_edges", "_view", "counts", "exemplars", "exponential", "total")

    def __init__(self, bounds: tuple[float, ...], *, exponential: bool = False) -> None:
        self._bounds = bounds
        self._edges = np.array(bounds)
        #: Values per bucket, not cumulative; the last one is above all bounds.
        self.counts = array("q", bytes(8 * (len(bounds) + 1)))
        self._view = np.frombuffer(self.counts, dtype=np.int64)
        self.total = 0.0
        #: The newest of each bucket that has one.
        self.exemplars: dict[int, Exemplar] = {}
        #: The same values once more, where somebody takes them; None where only their buckets are known.
        self.exponential = ExponentialBuckets() if exponential else None

    def observe(self, value: float, times: int = 1) -> None:
        """Values that are not finite are left out: one of them would spoil the sum for ever."""
        if isfinite(value):
            self.counts[bisect_left(self._bounds, value)] += times
            self.total += value * times
            if self.exponential is not None:
                self.exponential.observe(value, times)

    def exemplify(self, exemplar: Exemplar) -> None:
        """Of a value that was observed."""
        self.exemplars[bisect_left(self._bounds, exemplar.value)] = exemplar

    def observe_many(self, values: npt.NDArray[np.float64]) -> None:
        values = values[np.isfinite(values)]
        buckets = self._edges.searchsorted(values, side="left")
        self._view += np.bincount(buckets, minlength=len(self._view))
        self.total += float(values.sum())
        if self.exponential is not None:
            self.exponential.observe_many(values)

    def add_counts(self, counts: Sequence[int] | npt.NDArray[np.int64], total: float) -> None:
        """Add values that were sorted into these same bounds elsewhere. Raises ValueError for another number of
        buckets."""
        if len(counts) != len(self._view):
            raise ValueError(f"{len(counts)} bucket counts for {len(self._bounds)} bounds and +Inf")
        self.exponential = None
        self._view += np.asarray(counts, dtype=np.int64)
        self.total += total

    def set_counts(self, counts: Sequence[int], total: float) -> None:
        """For running totals that are kept elsewhere, such as in another process."""
        self._view[:] = 0
        self.total = 0.0
        self.add_counts(counts, total)


class Histogram(_Family[HistogramChild]):
    """Counts of values by bucket; seconds where the name says so."""

    #: Whether values go to exponential buckets, too.
    exponential = False

    def child(self, labels: Labels = ()) -> HistogramChild:
        """The buckets of this label set, made when new. One that is refused counts into the void."""
        found = self._children.get(labels)
        if found is None:
            found = HistogramChild(self.spec.bounds, exponential=self.exponential)
            if self._admit(labels):
                self._children[labels] = found
        return found

    def observe(self, labels: Labels, value: float) -> None:
        self.child(labels).observe(value)

    def observe_many(self, labels: Labels, values: npt.NDArray[np.float64]) -> None:
        self.child(labels).observe_many(values)

    def add_counts(self, labels: Labels, counts: Sequence[int] | npt.NDArray[np.int64], total: float) -> None:
        self.child(labels).add_counts(counts, total)

    def set_counts(self, labels: Labels, counts: Sequence[int], total: float) -> None:
        self.child(labels).set_counts(counts, total)


@dataclass(frozen=True, slots=True)
class FamilySnapshot:
    """A copy of one metric. ``values`` are those of counters and gauges; ``buckets`` hold, for a histogram, the counts
    per bucket (not cumulative) and the sum, ``exemplars`` those of its buckets by number, ``exponential`` all of it in
    exponential buckets, if it was asked for and every value was seen."""

    spec: Spec
    values: dict[Labels, float]
    buckets: dict[Labels, tuple[list[int], float]]
    exemplars: dict[Labels, dict[int, Exemplar]] = field(default_factory=dict)
    exponential: dict[Labels, ExponentialCounts] = field(default_factory=dict)

    @property
    def label_sets(self) -> int:
        return len(self.values) + len(self.buckets)

    @property
    def series(self) -> int:
        return self.label_sets * self.spec.series_per_label_set


Snapshot = tuple[FamilySnapshot, ...]

_FAMILIES: dict[Kind, type[Counter | Gauge | Histogram]] = {
    Kind.COUNTER: Counter,
    Kind.GAUGE: Gauge,
    Kind.HISTOGRAM: Histogram,
}


class Registry:
    """All metrics of a table, empty at first. ``exponential``: histograms have exponential buckets, too."""

    def __init__(self, table: Iterable[Spec] = TABLE, *, exponential: bool = False) -> None:
        self._families: dict[str, Counter | Gauge | Histogram] = {
            spec.name: _FAMILIES[spec.kind](spec) for spec in table
        }
        for family in self:
            if isinstance(family, Histogram):
                family.exponential = exponential

    def __iter__(self) -> Iterator[Counter | Gauge | Histogram]:
        return iter(self._families.values())

    def counter(self, spec: Spec) -> Counter:
        family = self._families[spec.name]
        if not isinstance(family, Counter):
            raise TypeError(f"{spec.name} is no counter")
        return family

    def gauge(self, spec: Spec) -> Gauge:
        family = self._families[spec.name]
        if not isinstance(family, Gauge):
            raise TypeError(f"{spec.name} is no gauge")
        return family

    def histogram(self, spec: Spec) -> Histogram:
        family = self._families[spec.name]
        if not isinstance(family, Histogram):
            raise TypeError(f"{spec.name} is no histogram")
        return family

    def precreate(self, spec: Spec, **fixed: str) -> None:
        """Make the series of a counter or histogram exist at 0, for all values its labels can take; labels with an
        open set need a ``fixed`` value. Without this a first error would be no increase, since a series that
        appears with 1 has no 0 before it."""
        choices = [(fixed[label.name],) if label.name in fixed else label.values for label in spec.labels]
        for labels in itertools.product(*choices):
            if spec.kind is Kind.COUNTER:
                self.counter(spec).add(labels, 0.0)
            else:
                self.histogram(spec).child(labels)

    def forget(self, label: str, value: str) -> None:
        """Drop every series that carries this label value, such as a model no longer served."""
        for family in self:
            if label in family.spec.label_names:
                family.remove_where(label, value)

    def snapshot(self, *, exponential: bool = False) -> Snapshot:
        """A copy of everything, to be rendered elsewhere; of exponential buckets where they are asked for."""
        if LABEL_SETS_REFUSED.name in self._families:
            self.counter(LABEL_SETS_REFUSED).set_total((), sum(family.refused for family in self))
        if EXPOSED_SERIES.name in self._families:
            gauge = self.gauge(EXPOSED_SERIES)
            gauge.set((), 0)
            gauge.set((), sum(len(family) * family.spec.series_per_label_set for family in self))
        return tuple(_copy(family, exponential=exponential) for family in self)


def _copy(family: Counter | Gauge | Histogram, *, exponential: bool) -> FamilySnapshot:
    if isinstance(family, Histogram):
        buckets = {labels: (child.counts.tolist(), child.total) for labels, child in family._children.items()}
        exemplars = {labels: dict(child.exemplars) for labels, child in family._children.items() if child.exemplars}
        seen = {}
        if exponential:
            seen = {
                labels: child.exponential.copy()
                for labels, child in family._children.items()
                if child.exponential is not None
            }
        return FamilySnapshot(family.spec, {}, buckets, exemplars, seen if len(seen) == len(buckets) else {})
    return FamilySnapshot(family.spec, dict(family._children), {})
