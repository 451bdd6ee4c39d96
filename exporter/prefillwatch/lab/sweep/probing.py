"""From the raw times of a probe to the figures of a row. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from prefillwatch.lab.probe.figures import RunFigures, victim_gaps
from prefillwatch.lab.probe.result import ProbeResult
from prefillwatch.lab.probe.sentences import on_trouble
from prefillwatch.lab.sweep.figures import ProbeFigures, Stalls, spread


def probe_figures(result: ProbeResult) -> ProbeFigures:
    """All repeats together: their gaps are one population, their prompts another."""
    settings = result.settings
    runs = [run for run in result.runs if run.injected]
    gaps = [gap for run in runs for gap in victim_gaps(run)]
    inside = [gap for run in runs for gap in victim_gaps(run) if gap.overlaps(run.injected_ns, run.released_ns)]
    figures = result.figures()
    first = [prompt.ttft_seconds for each in figures for prompt in each.prompts if prompt.ttft_seconds is not None]
    return ProbeFigures(
        inject=settings.inject,
        prompt_tokens=max(settings.prompt_tokens),
        runs=len(runs),
        overall=spread((gap.seconds for gap in gaps), together=settings.victims),
        window=spread((gap.seconds for gap in inside), together=settings.victims),
        first_token=spread(first),
        stalls=Stalls(
            stalls=sum(each.stalls for each in figures),
            stall_seconds=sum(each.stall_seconds for each in figures),
            decode_seconds=sum(gap.seconds for gap in gaps),
            streams=settings.victims,
            frozen_streams=max((each.stalled_victims for each in figures), default=0),
        ),
        prompt_tokens_per_second=_absorbed(figures),
        failures=tuple(on_trouble(figures)),
    )


def _absorbed(figures: Sequence[RunFigures]) -> float | None:
    """Prompt tokens of all that got a first token, over the lengths of the windows."""
    seconds = sum(each.window_seconds for each in figures)
    answered = [prompt for each in figures for prompt in each.prompts if prompt.ttft_seconds is not None]
    tokens = sum(prompt.prompt_tokens - (prompt.cached_tokens or 0) for prompt in answered)
    return tokens / seconds if seconds > 0 and tokens else None
