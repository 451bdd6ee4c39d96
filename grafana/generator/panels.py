"""What a panel shows, whatever draws it: `grafana.py` and `perses.py` make panels of their kind from these.

One function per kind of panel. A description holds what is of the subject: queries, units, limits, words; how a line is
drawn by Grafana, or a table by Perses, is theirs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from grafana.generator.limits import Steps, only
from grafana.generator.palette import ALL

NEUTRAL: Final = only(ALL)


class Form(Enum):
    """What a query is asked for."""

    OVER_TIME = "time_series"
    ROWS = "table"
    BUCKETS = "heatmap"


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str = ""
    instant: bool = False
    form: Form = Form.OVER_TIME


def over_time(expr: str, legend: str) -> Query:
    return Query(expr, legend)


def now(expr: str, legend: str) -> Query:
    """Asked for this moment only: the last value of a range would go on showing a silence that has ended."""
    return Query(expr, legend, instant=True)


def rows(expr: str) -> Query:
    return Query(expr, instant=True, form=Form.ROWS)


@dataclass(frozen=True, slots=True)
class Style:
    """How one series looks. ``name`` replaces the label value in legends."""

    color: str
    name: str = ""
    dashed: bool = False


def styles(colors: Mapping[str, str], names: Mapping[str, str] | None = None, suffix: str = "") -> dict[str, Style]:
    """A style for every label value; ``suffix`` is what follows the value in the legend format."""
    names = names or {}
    return {f"{value}{suffix}": Style(color, names.get(value, "")) for value, color in colors.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How lines over time are drawn, on a scale from ``low`` to ``high``.

    ``limit`` draws its steps as dashed lines. ``joined`` is for quantiles of what happens now and then: points less
    than JOINED_MS apart are one line. ``calcs`` are the figures beside the names in the legend.
    """

    log: bool = False
    low: float | None = None
    high: float | None = None
    limit: Steps | None = None
    stacked: bool = False
    bars: bool = False
    joined: bool = False
    calcs: tuple[str, ...] = ("max",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """How a figure in large letters is shown. ``zero`` and ``one`` are said instead of 0 and 1; ``named`` shows the
    names of its series; ``filled`` colours the panel instead of the letters."""

    zero: str | None = None
    one: str | None = None
    decimals: int | None = None
    named: bool = False
    filled: bool = True


FROM_ZERO = Look(low=0)
PLAIN = Face()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the name it gets, its unit, and whether its cells take the colours of thresholds."""

    name: str
    unit: str = "none"
    steps: Steps | None = None
    decimals: int | None = None
    gauge_max: float | None = None
    width: int | None = None
    links: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """What all kinds have. ``empty`` is said where there is no series."""

    title: str
    text: str
    queries: tuple[Query, ...]
    unit: str
    empty: str

    @property
    def description(self) -> str:
        """The text, and the metrics it is about, so that one finds them in the exporter's documentation."""
        names = sorted({name for query in self.queries for name in re.findall(r"\bprefillwatch_\w+", query.expr)})
        return f"{self.text}\n\nFrom: {', '.join(f'`{name}`' for name in names)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Panel):
    """One figure in large letters."""

    steps: Steps
    face: Face
    series: Mapping[str, Style]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines(Panel):
    """Lines, stacked areas or bars over time. ``link`` is followed from any point."""

    look: Look
    series: Mapping[str, Style]
    link: Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking(Panel):
    """Horizontal bars in the order of the query, which sorts them."""

    steps: Steps
    series: Mapping[str, Style]


@dataclass(frozen=True, slots=True, kw_only=True)
class Density(Panel):
    """A heatmap of a classic histogram: darker where more samples fell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Panel):
    """A table with one row for each combination of ``keys``, the labels that all queries keep; a column for each query
    after them."""

    keys: Mapping[str, Column]
    columns: tuple[Column, ...]
    sort_by: str
    descending: bool


def answer(
    title: str,
    text: str,
    *queries: Query,
    unit: str,
    steps: Steps,
    empty: str,
    face: Face = PLAIN,
    series: Mapping[str, Style] | None = None,
) -> Answer:
    return Answer(
        title=title, text=text, queries=queries, unit=unit, empty=empty, steps=steps, face=face, series=series or {}
    )


def lines(
    title: str,
    text: str,
    *queries: Query,
    unit: str,
    empty: str,
    look: Look = FROM_ZERO,
    series: Mapping[str, Style] | None = None,
    link: Mapping[str, str] | None = None,
) -> Lines:
    return Lines(
        title=title, text=text, queries=queries, unit=unit, empty=empty, look=look, series=series or {}, link=link
    )


def ranking(
    title: str, text: str, query: Query, unit: str, empty: str, steps: Steps, series: Mapping[str, Style] | None = None
) -> Ranking:
    return Ranking(title=title, text=text, queries=(query,), unit=unit, empty=empty, steps=steps, series=series or {})


def density(title: str, text: str, expr: str, unit: str, empty: str) -> Density:
    """``expr`` keeps only ``le``."""
    query = Query(expr, "{{le}}", form=Form.BUCKETS)
    return Density(title=title, text=text, queries=(query,), unit=unit, empty=empty)


def listing(
    title: str,
    text: str,
    queries: Sequence[tuple[Column, str]],
    empty: str,
    keys: Mapping[str, Column],
    sort_by: str,
    descending: bool = True,
) -> Listing:
    return Listing(
        title=title,
        text=text,
        queries=tuple(rows(expr) for _, expr in queries),
        unit="none",
        empty=empty,
        keys=keys,
        columns=tuple(column for column, _ in queries),
        sort_by=sort_by,
        descending=descending,
    )
