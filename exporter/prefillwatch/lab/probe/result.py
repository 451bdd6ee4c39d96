"""All that a probe found."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefillwatch.lab.probe.figures import RunFigures, Spread, measure
from prefillwatch.lab.probe.response import Response, respond
from prefillwatch.lab.probe.settings import ProbeSettings
from prefillwatch.lab.probe.timeline import Run
from prefillwatch.lab.probe.verdict import Verdict, judge


@dataclass(slots=True)
class ProbeResult:
    """`problem` is empty when the probe came to its end."""

    url: str
    model: str
    settings: ProbeSettings
    #: Unix seconds.
    started_at: float
    #: "tokenize" or "usage": how prompt lengths are known.
    counted_by: str = ""
    runs: list[Run] = field(default_factory=list)
    problem: str = ""
    #: It was told to stop.
    interrupted: bool = False

    def figures(self) -> list[RunFigures]:
        return [measure(run, self.settings.stall) for run in self.runs if run.injected]

    def doses(self) -> list[Dose]:
        """The runs by prompt size, smallest first."""
        figures = self.figures()
        sizes = sorted({each.prompt_tokens for each in figures})
        return [Dose(size, tuple(each for each in figures if each.prompt_tokens == size)) for size in sizes]

    def response(self) -> Response:
        return respond(self.figures())

    def verdict(self) -> Verdict:
        return judge(self.figures(), self.response(), self.settings.stall)

    def to_json(self) -> dict[str, Any]:
        """The figures of the largest size at the top, those of every size below `doses`. Seconds and tokens."""
        doses = [dose.to_json() for dose in self.doses()]
        largest = doses[-1] if doses else {"overall": _plain(Spread(0)), "window": _plain(Spread(0)), "prompts": []}
        verdict, response = self.verdict(), self.response()
        return {
            "label": self.settings.label,
            "url": self.url,
            "model": self.model,
            "started_at": self.started_at,
            "complete": not self.problem,
            "problem": self.problem,
            "prompt_lengths_by": self.counted_by,
            "settings": _settings(self.settings),
            **largest,
            "doses": doses,
            "response": _plain(response),
            "verdict": _plain(verdict) | {"effect": verdict.effect.value},
        }


@dataclass(frozen=True, slots=True)
class Dose:
    """One size of prompt, with all its repeats. Figures of several repeats are medians over them."""

    prompt_tokens: int
    runs: tuple[RunFigures, ...]

    @property
    def typical(self) -> RunFigures:
        """The run that the sentences are about: the one with the median p99 of its window."""
        ordered = sorted(self.runs, key=lambda run: run.window.p99_seconds or 0.0)
        return ordered[(len(ordered) - 1) // 2]

    @property
    def overall(self) -> Spread:
        return _median_spread([run.overall for run in self.runs])

    @property
    def window(self) -> Spread:
        return _median_spread([run.window for run in self.runs])

    @property
    def added_gap_seconds(self) -> float:
        return statistics.median(run.worst_added_seconds for run in self.runs)

    @property
    def work_seconds(self) -> float | None:
        """Per long prompt; None where none was taken in."""
        works = [run.work_seconds for run in self.runs if run.work_seconds is not None]
        return statistics.median(works) if works else None

    def to_json(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "overall": _plain(self.overall),
            "window": _plain(self.window),
            "prompts": [_plain(prompt) for run in self.runs for prompt in run.prompts],
            "stall_seconds": statistics.median(run.stall_seconds for run in self.runs),
            "stalled_victims": max(run.stalled_victims for run in self.runs),
            "repeats": [_plain(run) for run in self.runs],
        }


def _median_spread(spreads: Sequence[Spread]) -> Spread:
    """Samples are those of one run, since percentiles are."""
    if len(spreads) == 1:
        return spreads[0]

    def median(values: Iterable[float | None]) -> float | None:
        there = [value for value in values if value is not None]
        return statistics.median(there) if there else None

    return Spread(
        round(statistics.median(spread.samples for spread in spreads)),
        median(spread.p50_seconds for spread in spreads),
        median(spread.p99_seconds for spread in spreads),
        median(spread.max_seconds for spread in spreads),
    )


def _plain(value: Any) -> dict[str, Any]:
    return dataclasses.asdict(value)


def _settings(settings: ProbeSettings) -> dict[str, Any]:
    shown = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    rule, arrivals = settings.stall, settings.arrivals
    shown["stall"] = {"min_seconds": rule.min_gap, "factor": rule.factor, "always_seconds": rule.always}
    if arrivals is not None:
        shown["arrivals"] = {"seconds": arrivals.seconds, "prompt_tokens": arrivals.prompt_tokens}
    return shown
