"""The report of a probe as a page of its own."""

from __future__ import annotations

import datetime
from typing import Final

from prefillwatch.lab.probe import pictures, terminal
from prefillwatch.lab.probe.result import Dose, ProbeResult
from prefillwatch.lab.probe.sentences import Side
from prefillwatch.lab.probe.timeline import Run
from prefillwatch.lab.probe.verdict import Effect
from prefillwatch.lab.report.page import Page
from prefillwatch.report import duration

#: Prompts in the table of first tokens.
_MOST_ROWS: Final = 40


def to_html(result: ProbeResult, before: Side | None = None) -> str:
    """Raises ChartsMissingError without matplotlib."""
    when = datetime.datetime.fromtimestamp(result.started_at, datetime.timezone.utc)
    page = Page(terminal.title(result), f"{terminal.subtitle(result)}. Started {when:%Y-%m-%d %H:%M} UTC.")
    if result.problem:
        page.verdict(f"Not complete: {result.problem}. What was measured until then:")
    doses = result.doses()
    if not doses:
        page.text("Nothing was measured: no long prompt was sent.")
        return page.to_html()
    _overview(page, result, doses, before)
    _freeze(page, result, doses[-1])
    if len(doses) > 1:
        _doses(page, result, doses)
    _first_tokens(page, doses[-1])
    return page.to_html()


def _overview(page: Page, result: ProbeResult, doses: list[Dose], before: Side | None) -> None:
    verdict, *others = terminal.words(result)
    page.verdict(verdict, calm=result.verdict().effect is not Effect.FREEZES)
    page.table(terminal.GAP_HEAD, terminal.gap_rows(doses[-1]))
    page.text(*others)
    if before is not None:
        page.heading(f"Against {before.name}")
        page.table(
            ("p99", "all tokens", "injection window"),
            [_side(before), _side(Side(result.settings.label or "this probe", doses[-1].overall, doses[-1].window))],
        )
        page.text(terminal.comparison(result, before))


def _side(side: Side) -> tuple[str, str, str]:
    return side.name, duration(side.overall.p99_seconds), duration(side.window.p99_seconds)


def _freeze(page: Page, result: ProbeResult, dose: Dose) -> None:
    run = _shown(result, dose)
    page.heading("The freeze")
    page.figure(
        pictures.lanes(run, dose.typical),
        "Above, every token of every victim is a tick. Below, every long prompt is a bar from its sending to its first "
        "token. Shaded is the injection window.",
    )
    page.heading("How you count the tail")
    page.figure(
        pictures.tails(run),
        "The share of gaps longer than a length. Where a curve crosses the dashed line is its p99: a percentile means "
        "nothing without the population behind it.",
    )


def _shown(result: ProbeResult, dose: Dose) -> Run:
    """The raw times of the run that the sentences are about."""
    wanted = (dose.prompt_tokens, dose.typical.repeat)
    return next(run for run in result.runs if (run.prompt_tokens, run.repeat) == wanted)


def _doses(page: Page, result: ProbeResult, doses: list[Dose]) -> None:
    page.heading("Dose and response")
    page.table(terminal.DOSE_HEAD, terminal.dose_rows(doses))
    response = result.response()
    if response.points:
        page.figure(
            pictures.dose_response(response),
            "The work of a prompt is all the time it adds to a victim; the added gap is the longest wait at a stretch.",
        )


def _first_tokens(page: Page, dose: Dose) -> None:
    page.heading("Time to first token of the long prompts")
    prompts = sorted(dose.typical.prompts, key=lambda prompt: prompt.ttft_seconds or float("inf"))
    if len(prompts) > _MOST_ROWS:
        page.text(f"The slowest {_MOST_ROWS} of {len(prompts)}.", muted=True)
    failed = any(prompt.error for prompt in prompts)
    head = ("prompt", "tokens", "first token after", *(["error"] if failed else []))
    rows = [
        (
            str(number),
            f"{prompt.prompt_tokens:,}",
            duration(prompt.ttft_seconds),
            *([prompt.error or "–"] if failed else []),
        )
        for number, prompt in enumerate(prompts, 1)
    ]
    page.table(head, rows[-_MOST_ROWS:])
