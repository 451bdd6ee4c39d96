"""Estimates from histograms as people read them."""

from __future__ import annotations

import math

from prefillwatch.doctor.histogram import Estimate, Histogram
from prefillwatch.report import duration


def between(estimate: Estimate) -> str:
    """The bounds of its bucket: all that a histogram knows."""
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
    return f"~{duration(estimate.value, 2)} ({between(estimate)})"


def tokens(number: float) -> str:
    return f"{number:,.0f}"


def token_estimate(estimate: Estimate) -> str:
    if not math.isfinite(estimate.high):
        return f"above {tokens(estimate.low)}"
    if estimate.low == 0:
        return f"below {tokens(estimate.high)}"
    return f"~{tokens(estimate.value)} ({tokens(estimate.low)} to {tokens(estimate.high)})"


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
