"""Figures of a sweep as people read them. Pure."""

from __future__ import annotations

from prefillwatch.lab.sweep.figures import Spread, Stalls
from prefillwatch.lab.sweep.grid import AS_GIVEN
from prefillwatch.report import ABSENT, duration, share


def p99(spread: Spread | None) -> str:
    return duration(spread.p99_seconds if spread else None)


def bounds(spread: Spread | None) -> str:
    """The interval that holds the true p99; open above where the samples do not bound it."""
    if spread is None:
        return ABSENT
    low = duration(spread.p99_low_seconds)
    if spread.p99_high_seconds is None:
        return f"{low} or more"
    high = duration(spread.p99_high_seconds)
    return high if low == high else pair(low, high, " – ")


def pair(first: str, second: str, between: str) -> str:
    """Two times with the unit once where it is the same."""
    number, _, unit = first.partition(" ")
    return f"{number if second.endswith(f' {unit}') else first}{between}{second}"


def samples(spread: Spread | None) -> str:
    return f"{spread.samples:,}" if spread else "0"


def stalled(stalls: Stalls | None) -> str:
    return share(stalls.stall_seconds, stalls.decode_seconds) if stalls and stalls.decode_seconds else ABSENT


def rate(per_second: float | None) -> str:
    if per_second is None:
        return ABSENT
    return (
        f"{per_second:,.0f}"
        if per_second >= 99.5
        else f"{per_second:.1f}"
        if per_second >= 9.95
        else f"{per_second:.2f}"
    )


def named(label: str) -> str:
    """A setting's label inside a sentence."""
    return "the command as given" if label == AS_GIVEN else label
