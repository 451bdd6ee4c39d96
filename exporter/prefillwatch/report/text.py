"""Lines for a terminal: wrapped sentences and tables."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

#: Lines are never narrower than this; longer words stick out.
_NARROWEST: Final = 40
_KEPT_TOGETHER: Final = re.compile(r"(?<=\d) (?=(?:µs|ms|s|min|h|%|×)(?:[\s).,;:]|$))|(?<= – ) (?=\d)|(?<=--repeats) ")


def wrapped(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """Lines of at most so many columns, with ``first`` before the first and ``rest``, or else as many blanks, before
    the others. A figure is not parted from its unit, nor a flag from its value."""
    kept = _KEPT_TOGETHER.sub("\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(
        kept,
        max(width, _NARROWEST),
        initial_indent=first,
        subsequent_indent=" " * len(first) if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines] or [first.rstrip()]


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """Lines of a table: the first column to the left, figures to the right."""
    return columns([head, *rows], indent)


def columns(rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """The same without a head. Rows have as many cells each."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = []
    for name, *others in rows:
        cells = (name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)))
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def aligned(rows: Iterable[tuple[str, str]], indent: str = "  ") -> list[str]:
    """Rows of a name and a value, the values below each other."""
    rows = list(rows)
    width = max(len(name) for name, _ in rows)
    return [f"{indent}{name:<{width}}  {value}" for name, value in rows]
