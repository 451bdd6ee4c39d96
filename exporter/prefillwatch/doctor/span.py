"""What happened between two looks at the same page: increases of counters and histograms, safe against a restart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from prefillwatch.doctor.histogram import Histogram
from prefillwatch.doctor.page import Page

#: Start times of one process are written with rounding.
_SAME_START_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Span:
    """``before`` is None for totals since the server's start: no earlier page, or the server was restarted since."""

    before: Page | None
    after: Page
    restarted: bool = False

    def total(self, name: str, **labels: str) -> float | None:
        now = self.after.total(name, **labels)
        if now is None or self.before is None:
            return now
        return max(now - (self.before.total(name, **labels) or 0.0), 0.0)

    def totals(self, name: str, label: str, **labels: str) -> dict[str, float]:
        earlier = self.before.totals(name, label, **labels) if self.before else {}
        later = self.after.totals(name, label, **labels)
        return {value: max(now - earlier.get(value, 0.0), 0.0) for value, now in later.items()}

    def histogram(self, name: str, namespace: str = "") -> Histogram | None:
        now = self.after.histogram(name, namespace)
        before = self.before.histogram(name, namespace) if self.before else None
        return now.minus(before) if now and before else now

    def histograms(self, name: str, label: str, namespace: str = "") -> dict[str, Histogram]:
        """By the values of a label; those without a sample are left out."""
        earlier = self.before.histograms(name, label, namespace) if self.before else {}
        now = self.after.histograms(name, label, namespace)
        since = {value: each.minus(earlier[value]) if value in earlier else each for value, each in now.items()}
        return {value: each for value, each in since.items() if each.count}


def span_of(before: Page | None, after: Page) -> Span:
    """Of two pages, or of everything since the start if there is only one."""
    if before is not None and _restarted(before, after):
        return Span(None, after, restarted=True)
    return Span(before, after)


def _restarted(before: Page, after: Page) -> bool:
    starts = before.engines.start_time, after.engines.start_time
    if starts[0] is not None and starts[1] is not None and abs(starts[1] - starts[0]) > _SAME_START_S:
        return True
    return any(
        (after.total(name) or 0.0) < value
        for name, value in ((name, before.total(name)) for name in before.counters())
        if value is not None
    )
