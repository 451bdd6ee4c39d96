"""Tables and figures in text: for the terminal, and the same words in pages."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Lines of a table: the first column to the left, figures to the right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(row: Sequence[str]) -> str:
        first, *others = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return (indent + "  ".join((first, *others))).rstrip()

    return [line(head), *(line(row) for row in rows)]


def duration(seconds: float | None) -> str:
    """Three figures at most: 21 µs, 21.3 ms, 345 ms, 2.48 s, 61 s. Absent is a dash."""
    if not seconds:
        return "–" if seconds is None else "0 s"
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if abs(seconds) < limit * 0.9995:
            return f"{_three(seconds * factor)} {unit}"
    return f"{_three(seconds)} s"


def _three(value: float) -> str:
    size = abs(value)
    return f"{value:.2f}" if size < 9.995 else f"{value:.1f}" if size < 99.95 else f"{value:,.0f}"


def share(part: float, whole: float) -> str:
    """A percentage: 0.8 %, 12 %."""
    percent = 100 * part / whole if whole else 0.0
    return f"{percent:.1f} %" if percent < 9.95 else f"{percent:.0f} %"
