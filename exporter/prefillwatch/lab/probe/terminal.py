"""The report for a terminal, as lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from prefillwatch.lab.probe import sentences
from prefillwatch.lab.probe.figures import Spread
from prefillwatch.lab.probe.result import Dose, ProbeResult
from prefillwatch.lab.probe.settings import ProbeSettings
from prefillwatch.report import duration, text_table, wrapped

_WIDTH: Final = 118

GAP_HEAD: Final = ("victims' gaps", "p50", "p99", "max", "samples")
DOSE_HEAD: Final = (
    "prompt tokens",
    "added gap",
    "work per prompt",
    "p99 all",
    "p99 window",
    "samples",
    "stalls",
    "victims",
    "stall time",
    "last TTFT",
)


def report(result: ProbeResult, before: sentences.Side | None = None) -> list[str]:
    """Everything that the terminal shows."""
    lines = [title(result), *_wrapped([subtitle(result)]), ""]
    doses = result.doses()
    if result.problem:
        lines += [*_wrapped([f"Not complete: {result.problem}. What was measured until then:"]), ""]
    if not doses:
        return [*lines, "Nothing was measured: no long prompt was sent."]
    lines += [*_gaps(doses[-1], len(doses) > 1), ""]
    if len(doses) > 1:
        lines += [*text_table(DOSE_HEAD, dose_rows(doses)), ""]
    lines += _wrapped(words(result))
    if before is not None:
        lines += ["", *_wrapped([comparison(result, before)])]
    return lines


def title(result: ProbeResult) -> str:
    name = f" ({result.settings.label})" if result.settings.label else ""
    return f"Probe of {result.model} at {result.url}{name}"


def subtitle(result: ProbeResult) -> str:
    settings = result.settings
    repeats = f", {settings.repeats} times over" if settings.repeats > 1 else ""
    counted = "counted by the server" if result.counted_by == "tokenize" else "estimated from the server's usage"
    too_long = settings.arrivals_left_out
    left_out = f"; {too_long:,} more left out, too long for the model" if too_long else ""
    return f"{settings.victims} victims; {_prompts(settings)} tokens ({counted}){left_out}{repeats}"


def _prompts(settings: ProbeSettings) -> str:
    if settings.arrivals:
        shortest = min(arrival.prompt_tokens for arrival in settings.arrivals.arrivals)
        over = f"{settings.inject} recorded arrivals in {duration(settings.arriving_seconds)}"
        return f"{over}, prompts of {shortest:,} to {settings.prompt_tokens[0]:,}"
    sizes = " / ".join(f"{tokens:,}" for tokens in settings.prompt_tokens)
    return f"{'1 long prompt' if settings.inject == 1 else f'{settings.inject} long prompts at once'} of {sizes}"


def gap_rows(dose: Dose) -> list[tuple[str, ...]]:
    """Both populations side by side, and the gaps outside the window; with several repeats medians, and the range of
    the p99."""
    return [
        _gap_row("all tokens", [run.overall for run in dose.runs], dose.overall),
        _gap_row("injection window", [run.window for run in dose.runs], dose.window),
    ]


def _gap_row(name: str, of_runs: Sequence[Spread], typical: Spread) -> tuple[str, ...]:
    return (
        name,
        duration(typical.p50_seconds),
        _with_range(typical.p99_seconds, [spread.p99_seconds for spread in of_runs]),
        duration(typical.max_seconds),
        f"{typical.samples:,}",
    )


def dose_rows(doses: Iterable[Dose]) -> list[tuple[str, ...]]:
    return [_dose_row(dose) for dose in doses]


def _dose_row(dose: Dose) -> tuple[str, ...]:
    run = dose.typical
    times = [prompt.ttft_seconds for each in dose.runs for prompt in each.prompts if prompt.ttft_seconds is not None]
    return (
        f"{dose.prompt_tokens:,}",
        _with_range(dose.added_gap_seconds, [each.worst_added_seconds for each in dose.runs]),
        duration(dose.work_seconds),
        duration(dose.overall.p99_seconds),
        duration(dose.window.p99_seconds),
        f"{dose.window.samples:,}",
        f"{run.stalls:,}",
        f"{run.stalled_victims}",
        duration(run.stall_seconds),
        duration(max(times, default=None)),
    )


def _with_range(value: float | None, of_runs: Sequence[float | None]) -> str:
    there = [each for each in of_runs if each is not None]
    lowest, highest = duration(min(there, default=None)), duration(max(there, default=None))
    return duration(value) if lowest == highest else f"{duration(value)} ({lowest} to {highest})"


def words(result: ProbeResult) -> list[str]:
    """What the figures mean, a paragraph each; the verdict first."""
    doses = result.doses()
    largest, response = doses[-1], result.response()
    size = f"With {largest.prompt_tokens:,} tokens: " if len(doses) > 1 else ""
    return [
        result.verdict().sentence,
        size + sentences.on_the_tail(largest.typical),
        f"{sentences.on_stalls(largest.typical, result.settings.victims)} {sentences.on_first_tokens(largest.typical)}",
        " ".join(filter(None, (sentences.on_cost(response), sentences.on_growth(response)))),
        *sentences.on_trouble(result.figures()),
    ]


def comparison(result: ProbeResult, before: sentences.Side) -> str:
    largest = result.doses()[-1]
    name = result.settings.label or "this probe"
    return sentences.compare(before, sentences.Side(name, largest.overall, largest.window))


def _gaps(dose: Dose, several: bool) -> list[str]:
    head = [f"{GAP_HEAD[0]}, {dose.prompt_tokens:,}-token prompt" if several else GAP_HEAD[0], *GAP_HEAD[1:]]
    return text_table(head, gap_rows(dose))


def _wrapped(paragraphs: Iterable[str]) -> list[str]:
    return [line for text in paragraphs for line in wrapped(text, _WIDTH, rest="  ")]
