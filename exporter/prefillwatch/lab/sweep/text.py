"""A sweep's report for the terminal. Pure."""

from __future__ import annotations

import re
import shlex
import textwrap
from typing import Final

from prefillwatch.lab.report.table import text_table
from prefillwatch.lab.sweep.choice import Slo
from prefillwatch.lab.sweep.store import Results
from prefillwatch.lab.sweep.tables import tables
from prefillwatch.lab.sweep.words import sentences

_WIDTH: Final = 118
_KEPT_TOGETHER: Final = re.compile(r"(?<=\d) (?=(?:ms|s|µs|%|×)\b|[%×])|(?<= – ) (?=\d)|(?<=--repeats) ")


def report(results: Results, slo: Slo) -> str:
    """Tables, then what they mean in sentences."""
    lines = [heading(results), ""]
    notes: set[str] = set()
    for table in tables(results.settings):
        lines += [table.title, *text_table(table.head, table.wrapped(), indent="")]
        lines += [*([] if table.note in notes else _wrapped(table.note, "")), ""]
        notes.add(table.note)
    for sentence in sentences(results.settings, slo, victims(results)):
        lines += _wrapped(sentence, "- ")
    return "\n".join(lines)


def heading(results: Results) -> str:
    model = f" ({results.model})" if results.model else ""
    return f"Sweep of {shlex.join(results.command)}{model}"


def victims(results: Results) -> int:
    return int(results.measurement.get("victims", 1))


def _wrapped(text: str, bullet: str) -> list[str]:
    """Lines that do not part a figure from its unit, or a flag from its value."""
    kept = _KEPT_TOGETHER.sub("\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(
        kept, _WIDTH, initial_indent=bullet, subsequent_indent=" " * len(bullet), break_on_hyphens=False
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
