"""A sweep's report as one HTML page with charts (extra ``charts``)."""

from __future__ import annotations

from datetime import datetime, timezone

from prefillwatch.lab.report.page import Page
from prefillwatch.lab.sweep.choice import Slo, choose
from prefillwatch.lab.sweep.pictures import both_populations, trade_off
from prefillwatch.lab.sweep.sentences import on_choice, sentences
from prefillwatch.lab.sweep.store import Results
from prefillwatch.lab.sweep.tables import Table, tables
from prefillwatch.lab.sweep.terminal import heading, victims


def page(results: Results, slo: Slo) -> str:
    """Raises ChartsMissingError where matplotlib is not installed."""
    started = datetime.fromtimestamp(results.started_at, timezone.utc)
    made = Page("Which setting costs what", f"{heading(results)}, {started:%Y-%m-%d %H:%M UTC}")
    measured = [outcome for outcome in results.settings if outcome.failure is None]
    found = tables(results.settings)
    chosen = on_choice(measured, slo)
    if chosen:
        choice = choose(measured, slo)
        made.verdict(" ".join(chosen), calm=choice is not None and choice.met)
    trade, others = found[:1], found[1:]
    for table in trade:
        _section(made, table, trade_off(measured, slo), "Down and to the left is better. Joined: the Pareto front.")
    made.heading("What that means")
    made.text(*(each for each in sentences(results.settings, slo, victims(results)) if each not in chosen))
    # The tables of the probes come in the same order; that of the mix has no picture.
    injects = sorted({probe.inject for outcome in measured for probe in outcome.probes}, reverse=True)
    pictures = [both_populations(measured, inject) for inject in injects]
    for table, picture in zip(others, [*pictures, ""], strict=False):
        _section(made, table, picture)
    return made.to_html()


def _section(made: Page, table: Table, picture: str, caption: str = "") -> None:
    made.heading(table.title)
    if picture:
        made.figure(picture, caption)
    made.table(table.head, table.rows)
    made.text(table.note, muted=True)
