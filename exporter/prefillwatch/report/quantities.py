"""Quantities as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

#: Shown in place of a figure that is not known.
ABSENT: Final = "–"

#: Units with their seconds, and the size at which the next larger unit is taken.
_UNITS: Final = ((1e-6, "µs", 1000), (1e-3, "ms", 1000), (1.0, "s", 120), (60.0, "min", 120), (3600.0, "h", math.inf))


def duration(seconds: float | None, figures: int = 3) -> str:
    """At most so many significant figures: 21.4 µs, 345 ms, 2.5 s, 61.2 s, 2.05 min. Estimates take two."""
    if seconds is None:
        return ABSENT
    if not math.isfinite(seconds):
        return "without end"
    if seconds == 0:
        return "0 s"
    scaled = ((_rounded(seconds / size, figures), unit, most) for size, unit, most in _UNITS)
    value, unit = next((value, unit) for value, unit, most in scaled if abs(value) < most)
    return f"{value:,.2f}".rstrip("0").rstrip(".") + f" {unit}"


def _rounded(value: float, figures: int) -> float:
    """To so many significant figures, but never to tens."""
    places = figures - 1 - math.floor(math.log10(abs(value)))
    return round(value, max(0, places))


def share(part: float | None, whole: float = 1.0) -> str:
    """A percentage: 12 %, 0.8 %, < 0.1 %, 0 %. Of nothing it is 0 %."""
    if part is None:
        return ABSENT
    percent = 100 * part / whole if whole else 0.0
    if percent == 0 or percent >= 9.95:
        return f"{percent:.0f} %"
    return f"{percent:.1f} %" if percent >= 0.1 else "< 0.1 %"


def counted(number: float, one: str, several: str = "") -> str:
    """1 stall, 3 stalls, 1,200 bodies."""
    return f"{number:,.0f} {one if round(number) == 1 else several or one + 's'}"


def listed(items: Iterable[str]) -> str:
    """a, b and c."""
    *most, last = list(items) or [""]
    return f"{', '.join(most)} and {last}" if most else last
