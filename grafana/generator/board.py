"""A board: rows of panels, and the variables that choose what they are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from grafana.generator.metric import OUR_TARGETS
from grafana.generator.panels import Panel

from prefillwatch.export.table import WINDOW

WIDTH: Final = 24
TAG: Final = "prefillwatch"
#: Alerts that say something about freezes; the rules are in alerts/.
ALERTS: Final = "PrefillInterference|StreamFreeze|NotPrefill.+"


@dataclass(frozen=True, slots=True)
class Line:
    """Panels side by side, all of one height; each with its width in columns.

    ``marked``: freezes are drawn into these panels; elsewhere they would only be clutter.
    """

    height: int
    panels: tuple[tuple[int, Panel], ...]
    marked: bool = False

    def __post_init__(self) -> None:
        if sum(width for width, _ in self.panels) != WIDTH:
            raise ValueError(f"the panels of a line must fill {WIDTH} columns")


@dataclass(frozen=True, slots=True)
class Section:
    """A row of the dashboard."""

    title: str
    lines: tuple[Line, ...]


def even(height: int, *panels: Panel, marked: bool = False) -> Line:
    return Line(height, tuple((WIDTH // len(panels), panel) for panel in panels), marked)


def split(height: int, *panels: tuple[int, Panel]) -> Line:
    return Line(height, panels)


@dataclass(frozen=True, slots=True)
class Variable:
    """Any of the values of a label that series have."""

    name: str
    label: str
    selector: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """One of a few values."""

    name: str
    label: str
    text: str
    values: tuple[str, ...]
    chosen: str


@dataclass(frozen=True, slots=True)
class Board:
    """``freezes`` is the query whose samples are marked in all marked panels; ``time`` how far back the board looks."""

    uid: str
    title: str
    description: str
    sections: tuple[Section, ...]
    variables: tuple[Variable | Chosen, ...]
    freezes: str
    time: str


def target_variables() -> tuple[Variable | Chosen, ...]:
    """What was seen, and the sliding window of gauges: a minute shows a freeze while it still matters."""
    return (
        Variable("job", "Job", "prefillwatch_build_info"),
        Variable("instance", "Instance", 'prefillwatch_build_info{job=~"$job"}'),
        Variable("model", "Model", f"prefillwatch_decoding_streams{{{OUR_TARGETS}}}"),
        Chosen("window", "Window", "Sliding window of the p50, p99 and max gauges", WINDOW.values, WINDOW.values[1]),
    )
