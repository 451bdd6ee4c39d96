"""The report as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prefillwatch.doctor.examine import Report
from prefillwatch.doctor.figures import Figures
from prefillwatch.doctor.finding import Finding, Seen, Sort
from prefillwatch.doctor.page import OURS
from prefillwatch.doctor.servers import SERVERS
from prefillwatch.report import counted, duration, wrapped

#: Text and the name of a colour in, text out.
Paint = Callable[[str, str], str]

_MARK_WIDTH: Final = 10
_NAME_WIDTH: Final = 21
_COLOURS: Final = {"SEEN": "red", "FAULT": "magenta", "note": "cyan", "unknown": "yellow", "not seen": "green"}


def render(report: Report, url: str, paint: Paint, width: int = 100) -> Iterator[str]:
    """Lines, the worst first."""
    yield _headline(report.figures, url)
    yield _verdict(report)
    yield ""
    for finding in report.findings:
        if finding.seen is Seen.YES:
            yield from _seen(finding, paint, width)
    for mark, text in _short(report.findings):
        yield from _hanging(paint(f"{mark:<{_MARK_WIDTH}}", _COLOURS[mark]), text, width, _MARK_WIDTH)
    yield ""
    yield "Measured" + (" since the start" if report.figures.seconds is None else "")
    for measurement in report.measurements:
        unknown = f" (not from here: {measurement.unknown})" if measurement.unknown else ""
        head = f"  {measurement.name:<{_NAME_WIDTH}}"
        yield from _hanging(head, measurement.words + unknown, width, len(head))
    if report.names_foreign_flags:
        yield ""
        yield from wrapped("Flags are named as vLLM has them; this server has its own.", width)
    if not report.figures.is_sidecar:
        yield ""
        yield from wrapped(f"What this page does not show: {report.would_tell}.", width)


def _headline(figures: Figures, url: str) -> str:
    if figures.server == OURS:
        behind = SERVERS[figures.engine].says if figures.engine in SERVERS else "a server of unknown kind"
        what = f"prefillwatch in front of {behind}"
    else:
        what = f"{SERVERS[figures.server].says}'s own metrics{', with our plugin in it' if figures.by_step else ''}"
    watched = "totals since its start" if figures.seconds is None else f"watched for {duration(figures.seconds)}"
    most = figures.most_streams()
    streams = f", up to {counted(most, 'stream')} at once" if most else ""
    return f"{url}: {what}, {watched}{streams}"


def _verdict(report: Report) -> str:
    troubles = [finding for finding in report.findings if finding.is_trouble]
    symptoms = sum(finding.sort is Sort.SYMPTOM for finding in troubles)
    faults = len(troubles) - symptoms
    unknown = sum(finding.seen is Seen.UNKNOWN for finding in report.findings)
    parts = [counted(symptoms, "symptom") + " seen" if symptoms else "no symptom seen"]
    parts += [counted(faults, "fault") + " of the measurement"] if faults else []
    parts += [f"{unknown} that cannot be known"] if unknown else []
    return ", ".join(parts)


def _seen(finding: Finding, paint: Paint, width: int) -> Iterator[str]:
    mark = {Sort.SYMPTOM: "SEEN", Sort.FAULT: "FAULT", Sort.NOTE: "note"}[finding.sort]
    head, *more = wrapped(finding.title, width - _MARK_WIDTH)
    indent = " " * _MARK_WIDTH
    yield paint(f"{mark:<{_MARK_WIDTH}}", _COLOURS[mark]) + paint(head, "bold")
    yield from (indent + paint(line, "bold") for line in more)
    unknown = f" Not known from here: {finding.unknown}." if finding.unknown else ""
    yield from _hanging(indent, " ".join(filter(None, (finding.words, finding.aside))) + unknown, width, _MARK_WIDTH)
    if finding.remedy:
        yield from _hanging(f"{indent}→ ", finding.remedy, width, _MARK_WIDTH + 2)
    if finding.runbook:
        yield f"{indent}  alerts/runbooks/{finding.runbook}.md"


def _short(findings: Iterable[Finding]) -> Iterator[tuple[str, str]]:
    """What is unknown or not seen, in a line or two. Those with the same reason share it."""
    for seen, mark in ((Seen.UNKNOWN, "unknown"), (Seen.NO, "not seen")):
        by_reason: dict[str, list[str]] = {}
        for finding in findings:
            if finding.seen is seen:
                by_reason.setdefault(finding.words, []).append(finding.title)
        for reason, titles in by_reason.items():
            yield mark, f"{' · '.join(titles)}: {reason}"


def _hanging(head: str, text: str, width: int, indent: int) -> Iterator[str]:
    """The text after its head, the lines that follow below its beginning. A head may hold invisible colours."""
    first, *more = wrapped(text, width - indent)
    yield head + first
    yield from (" " * indent + line for line in more)
