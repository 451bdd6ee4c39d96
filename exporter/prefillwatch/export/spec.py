"""How a metric is declared: its name, kind, labels, help and bounds, and how many series that can become. Pure."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Final

PREFIX: Final = "prefillwatch_"


class Kind(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Label:
    """A label name with the values it can take; no values: the set is open, and bounded by the code that feeds it."""

    name: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Spec:
    """One metric family. Two are the same only if they are one object, so that looking something up by them is quick.

    ``name`` is written without the prefix; a counter's ends in ``_total``. ``bounds`` are the finite upper bounds of a
    histogram, inclusive as ``le`` is, in the unit of the name.
    """

    name: str
    kind: Kind
    labels: tuple[Label, ...]
    help: str
    bounds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if (self.kind is Kind.COUNTER) != self.name.endswith("_total"):
            raise ValueError(f"{self.name}: counters, and only counters, end in _total")
        if (self.kind is Kind.HISTOGRAM) != bool(self.bounds):
            raise ValueError(f"{self.name}: histograms, and only histograms, have bounds")
        if any(not low < high for low, high in zip(self.bounds, self.bounds[1:], strict=False)):
            raise ValueError(f"{self.name}: bounds must rise: {self.bounds}")
        if not all(map(math.isfinite, self.bounds)):
            raise ValueError(f"{self.name}: bounds must be finite; +Inf is always there")

    @property
    def full_name(self) -> str:
        return PREFIX + self.name

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(label.name for label in self.labels)

    @property
    def series_per_label_set(self) -> int:
        """Exposed lines for one set of label values: a histogram has its buckets, +Inf, _sum and _count."""
        return len(self.bounds) + 3 if self.kind is Kind.HISTOGRAM else 1


def window_name(seconds: int) -> str:
    """The label value of a sliding window: 10 gives ``10s``, 60 gives ``1m``."""
    return f"{seconds // 60}m" if seconds % 60 == 0 else f"{seconds}s"
