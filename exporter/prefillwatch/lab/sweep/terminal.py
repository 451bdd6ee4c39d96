"""A sweep's report for the terminal. Pure."""

from __future__ import annotations

import shlex
from typing import Final

from prefillwatch.lab.sweep.choice import Slo
from prefillwatch.lab.sweep.sentences import sentences
from prefillwatch.lab.sweep.store import Results
from prefillwatch.lab.sweep.tables import tables
from prefillwatch.report import text_table, wrapped

_WIDTH: Final = 118


def report(results: Results, slo: Slo) -> str:
    """Tables, then what they mean in sentences."""
    lines = [heading(results), ""]
    notes: set[str] = set()
    for each in tables(results.settings):
        lines += [each.title, *text_table(each.head, each.wrapped())]
        lines += [*([] if each.note in notes else wrapped(each.note, _WIDTH)), ""]
        notes.add(each.note)
    for sentence in sentences(results.settings, slo, victims(results)):
        lines += wrapped(sentence, _WIDTH, "- ")
    return "\n".join(lines)


def heading(results: Results) -> str:
    model = f" ({results.model})" if results.model else ""
    return f"Sweep of {shlex.join(results.command)}{model}"


def victims(results: Results) -> int:
    return int(results.measurement.get("victims", 1))
