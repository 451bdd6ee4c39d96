"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from prefillwatch.doctor.histogram import Estimate, Histogram


def duration(seconds: float) -> str:
    """21 ms, 0.98 s, 12 s, 3.5 min."""
    if not math.isfinite(seconds):
        return "without end"
    if seconds == 0:
        return "0 s"
    if seconds < 0.0095:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def between(estimate: Estimate) -> str:
    """Between which bounds it lies: all that a histogram knows."""
    if not math.isfinite(estimate.high):
        return f"above {duration(estimate.low)}"
    if estimate.low == 0:
        return f"below {duration(estimate.high)}"
    return f"{duration(estimate.low)} to {duration(estimate.high)}"


def roughly(estimate: Estimate) -> str:
    """The interpolated value with its error: ~21 ms (10 ms to 25 ms)."""
    if not math.isfinite(estimate.high):
        return f"above {duration(estimate.low)}"
    if estimate.low == 0:
        return between(estimate)
    return f"~{duration(estimate.value)} ({between(estimate)})"


def tokens(number: float) -> str:
    return f"{number:,.0f}"


def token_estimate(estimate: Estimate) -> str:
    if not math.isfinite(estimate.high):
        return f"above {tokens(estimate.low)}"
    if estimate.low == 0:
        return f"below {tokens(estimate.high)}"
    return f"~{tokens(estimate.value)} ({tokens(estimate.low)} to {tokens(estimate.high)})"


def share(part: float) -> str:
    percent = 100 * part
    return f"{percent:.0f} %" if percent >= 9.5 or percent == 0 else f"{percent:.1f} %" if percent >= 0.1 else "< 0.1 %"


def many(number: float, what: str, plural: str = "") -> str:
    """1 stall, 3 stalls."""
    return f"{number:,.0f} {what if round(number) == 1 else plural or what + 's'}"


def listed(items: Iterable[str]) -> str:
    """a, b and c."""
    *most, last = list(items) or [""]
    return f"{', '.join(most)} and {last}" if most else last


def spread(histogram: Histogram) -> dict[str, float | int | None]:
    """A histogram of seconds as numbers for programs."""
    p50, p95, p99, longest = *map(histogram.quantile, (0.5, 0.95, 0.99)), histogram.longest()
    return {
        "samples": histogram.count,
        "p50_seconds": _value(p50),
        "p95_seconds": _value(p95),
        "p99_seconds": _value(p99),
        "p99_at_least_seconds": p99.low if p99 else None,
        "p99_at_most_seconds": _finite(p99.high) if p99 else None,
        "longest_at_least_seconds": longest.low if longest else None,
        "longest_at_most_seconds": _finite(longest.high) if longest else None,
    }


def _value(estimate: Estimate | None) -> float | None:
    return estimate.value if estimate else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
