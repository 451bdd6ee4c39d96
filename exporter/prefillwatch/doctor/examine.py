"""From what was read to what the doctor says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from prefillwatch.doctor import cache, pauses, pressure, tenants, tradeoffs, trust, waiting
from prefillwatch.doctor.figures import Figures
from prefillwatch.doctor.finding import Finding, Measurement, Seen, Sort
from prefillwatch.doctor.look import Look
from prefillwatch.doctor.measurements import measure
from prefillwatch.doctor.readers import read
from prefillwatch.doctor.remedies import for_server, has_foreign_flags
from prefillwatch.doctor.servers import SERVERS

SIDECAR_TELLS: Final = "prefillwatch in front of it does (prefillwatch serve --upstream URL)"
PLUGIN_TELLS: Final = "its plugin inside vLLM also reports how gaps depend on prompt tokens in the same engine step"
_SEEN_ORDER: Final = {Seen.YES: 0, Seen.UNKNOWN: 1, Seen.NO: 2}
_SORT_ORDER: Final = {Sort.SYMPTOM: 0, Sort.FAULT: 1, Sort.NOTE: 2}


@dataclass(frozen=True, slots=True)
class Report:
    """Findings with the worst first."""

    figures: Figures
    findings: tuple[Finding, ...]
    measurements: tuple[Measurement, ...]

    @property
    def exit_code(self) -> int:
        """The exit code: 1 when a symptom or a fault of the measurement was seen, else 0. What is unknown and what is
        only a note do not count."""
        return int(any(finding.is_trouble for finding in self.findings))

    @property
    def would_tell(self) -> str:
        """Which tool would show what cannot be known from here; empty where nothing would show more."""
        if self.figures.is_sidecar:
            return ""
        could_have_plugin = self.figures.server == "vllm" and not self.figures.by_step
        return f"{SIDECAR_TELLS}; {PLUGIN_TELLS}" if could_have_plugin else SIDECAR_TELLS

    @property
    def names_foreign_flags(self) -> bool:
        """Whether remedies name flags of vLLM that the server, another one, does not have."""
        engine = _engine(self.figures)
        return (
            engine in SERVERS
            and engine != "vllm"
            and any(has_foreign_flags(engine, finding.remedy) for finding in self.findings)
        )

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "server": self.figures.server,
            "engine": self.figures.engine or None,
            "watched_seconds": self.figures.seconds,
            "exit_code": self.exit_code,
            "would_tell": self.would_tell or None,
            "findings": [_finding(each) for each in self.findings],
            "measurements": [
                {
                    "name": each.name,
                    "words": each.words,
                    "numbers": each.numbers,
                    "cannot_be_known": each.unknown or None,
                }
                for each in self.measurements
            ],
        }


def examine(look: Look) -> Report:
    """All that can be said of a server."""
    figures = read(look)
    engine = _engine(figures)
    found = (replace(each, remedy=for_server(engine, each.remedy)) for each in _findings(figures, look))
    findings = sorted(found, key=_rank)
    return Report(figures, tuple(findings), tuple(measure(figures)))


def _engine(figures: Figures) -> str:
    """The kind of server that computes."""
    return figures.engine if figures.is_sidecar else figures.server


def _findings(figures: Figures, look: Look) -> Iterator[Finding]:
    yield from waiting.now(figures)
    yield pauses.prompt_pauses(figures)
    yield from tenants.one_to_all(figures)
    yield tradeoffs.first_tokens_for_gaps(figures)
    yield tradeoffs.throughput_for_tail(figures)
    yield tradeoffs.single_user(figures)
    yield from pauses.other_pauses(figures)
    yield from pauses.slow_for_all(figures)
    yield waiting.late_first_tokens(figures)
    yield waiting.queue_saturation(figures)
    yield waiting.head_of_line(figures)
    yield from pressure.pressures(figures)
    yield cache.nearly_full(figures)
    yield cache.preempted(figures)
    yield from trust.blind_spots(figures)
    if look.lost:
        title = "The server went away while it was watched"
        words = f"{look.lost}. Figures are of the time before."
        yield Finding("lost", title, Seen.YES, words, sort=Sort.FAULT, runbook="ExporterDown")


def _rank(finding: Finding) -> tuple[int, int, float]:
    """Findings of one rank stay in the order in which they were made."""
    weight = -finding.weight if finding.seen is Seen.YES else 0.0
    return _SEEN_ORDER[finding.seen], _SORT_ORDER[finding.sort], weight


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "symptom": finding.symptom,
        "title": finding.title,
        "sort": finding.sort.value,
        "seen": finding.seen.value,
        "words": finding.words,
        "numbers": finding.numbers,
        "remedy": finding.remedy or None,
        "runbook": f"alerts/runbooks/{finding.runbook}.md" if finding.runbook else None,
        "cannot_be_known": finding.unknown or None,
    }
