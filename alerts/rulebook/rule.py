"""What a rule is, and the words that descriptions are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import dedent

from alerts.rulebook.source import Duration


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording rule, named level:metric:operations."""

    record: str
    expr: str


@dataclass(frozen=True, slots=True)
class Alert:
    """An alerting rule. ``summary`` has no variables; ``labels`` never hold the value."""

    name: str
    severity: str
    expr: str
    hold: Duration
    keep: Duration
    summary: str
    description: str
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated one after the other, so that later ones may use earlier ones."""

    name: str
    rules: tuple[Recording | Alert, ...]


def promql(text: str) -> str:
    """An expression as it goes into the file."""
    return dedent(text).strip("\n") + "\n"


def number(value: float) -> str:
    """20.0 as 20, 0.05 as 0.05."""
    return f"{value:g}"


def share(value: float) -> str:
    """0.05 as 5 %."""
    return f"{100 * value:g} %"


VALUE_AS_SECONDS = "{{ $value | humanizeDuration }}"
VALUE_AS_SHARE = "{{ $value | humanizePercentage }}"
VALUE_AS_RATE = '{{ $value | printf "%.2f" }}'
VALUE_AS_COUNT = '{{ $value | printf "%.0f" }}'


def label(name: str) -> str:
    return f"{{{{ $labels.{name} }}}}"


def asked(query: str, labels: tuple[str, ...], show: str, otherwise: str) -> str:
    """Text from a query made when the alert is looked at. ``%q`` in the query stands for the labels, quoted; ``show``
    is the template of the first answer, ``otherwise`` what is said when there is none."""
    arguments = " ".join(f"$labels.{name}" for name in labels)
    return f"{{{{ with query (printf `{query}` {arguments}) }}}}{show}{{{{ else }}}}{otherwise}{{{{ end }}}}"
