"""docs/sensitivity.md: what a move of each tunable does, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "sensitivity.md"
BEGIN, END = "<!-- moves: begin -->", "<!-- moves: end -->"
COUNTED: Final = ("precision", "recall", "names", "other causes")
#: Changes smaller than this, in percentage points, are none.
_SMALL: Final = 0.005


def words(figures: Sequence[float]) -> str:
    return ", ".join(f"{what} {percent:.2f} %" for what, percent in zip(COUNTED, figures, strict=True))


def change(points: Sequence[float]) -> str:
    told = [f"{what} {each:+.2f}" for what, each in zip(COUNTED, points, strict=True) if abs(each) >= _SMALL]
    return ", ".join(told) or "no change"


def table(base: str, rows: Mapping[str, Sequence[str]]) -> str:
    """All rows that change something, and the names of the others; figures and changes in words."""
    shown = {name: its for name, its in rows.items() if set(its) != {"no change"}}
    lines = [f"As it is: {base}.", "", "| tunable | × 0.7 | × 1.3 |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | {' | '.join(its)} |" for name, its in shown.items()]
    still = ", ".join(f"`{name}`" for name in rows if name not in shown)
    return "\n".join([*lines, "", f"No verdict on these pieces changes with: {still}."])


def write(base: str, rows: Mapping[str, Sequence[str]]) -> None:
    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n{table(base, rows)}\n{END}{tail}")
