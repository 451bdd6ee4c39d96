"""Whether this model on this machine can show the effect at all. Pure.

What counts is the ratio of the interfering work to the step it disturbs: a model that takes a long prompt in within the
time of a step or two has no freeze to show, whatever the scheduler's settings, and an experiment on it "proves" that
they do nothing.
"""

from __future__ import annotations

import enum
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from prefillwatch.analysis.settings import StallRule
from prefillwatch.analysis.tuning import DEFAULT
from prefillwatch.lab.probe.figures import RunFigures
from prefillwatch.lab.probe.response import Response
from prefillwatch.report import duration

#: With fewer quiet gaps than this, the usual gap is not known.
_FEWEST_QUIET: Final = 20
#: A longer prompt than this is no answer to "how long would it have to be?".
_LONGEST_NAMED: Final = 200_000


class Effect(enum.Enum):
    """How visible the freeze is."""

    FREEZES = "freezes"  # victims stall
    SLICED = "sliced"  # the work is there, in beats too short to be stalls
    HARDLY = "hardly"  # a slower step or two, too short to notice
    NONE = "none"  # the prompt drowns in a step or two
    UNCLEAR = "unclear"  # too little was measured, or streams stall without prompts as well


@dataclass(frozen=True, slots=True)
class Verdict:
    """`ratio`: work of the largest prompt over the usual gap; None when unclear."""

    effect: Effect
    sentence: str
    ratio: float | None = None


def judge(runs: Sequence[RunFigures], response: Response, rule: StallRule) -> Verdict:
    """From all runs of a probe and what `respond` made of them."""
    baselines = [run.baseline_seconds for run in runs if run.baseline_seconds]
    if not response.points or not baselines:
        return Verdict(Effect.UNCLEAR, "No verdict: no victim streamed while a long prompt was taken in.")
    baseline = statistics.median(baselines)
    largest = response.points[-1]
    ratio = largest.work_seconds / baseline
    stalling = [run for run in runs if run.stalls]
    if unclear := _why_unclear(runs):
        return Verdict(Effect.UNCLEAR, unclear, ratio)
    mixed = any(len({prompt.asked_tokens for prompt in run.prompts}) > 1 for run in runs)
    size = f"{largest.prompt_tokens:,.0f} tokens{', the mean here,' if mixed else ''}"
    prompt = f"a prompt of {size} is {duration(largest.work_seconds)} of work"
    beside = f"{_times(ratio)} the {duration(baseline)} that a step takes without it"
    if stalling:
        sentence = f"This model on this machine shows the effect: {prompt}, {beside}. {_stalled(response, stalling)}"
        return Verdict(Effect.FREEZES, sentence, ratio)
    threshold = rule.least_seconds(baseline)
    if baseline + largest.work_seconds >= threshold:
        return Verdict(
            Effect.SLICED,
            f"This model on this machine can show the effect ({prompt}, {beside}), but the server takes it in slices: "
            f"no gap grew by more than {duration(largest.added_gap_seconds)}, which is no stall. Taken in one piece it "
            "would be one.",
            ratio,
        )
    if ratio >= DEFAULT.advice.hardly - 1:
        return Verdict(
            Effect.HARDLY,
            f"This model on this machine hardly shows the effect: {prompt}, {beside}; that is a slow beat, no freeze."
            + _longer(response, threshold - baseline),
            ratio,
        )
    return Verdict(
        Effect.NONE,
        f"This model on this machine cannot show the effect: {prompt}, {beside}, so that it drowns in the usual steps. "
        "Chunked prefill and step budgets will seem to do nothing here; that says nothing about a larger model."
        + _longer(response, threshold - baseline),
        ratio,
    )


def _stalled(response: Response, stalling: Sequence[RunFigures]) -> str:
    worst = f"the longest gap grew by {duration(response.points[-1].added_gap_seconds)}"
    if len(response.points) == 1:
        return f"Such prompts stall the victims: {worst}."
    smallest = min(run.prompt_tokens for run in stalling)
    return f"Prompts of {smallest:,} tokens and more stall the victims; with the largest, {worst}."


def _why_unclear(runs: Sequence[RunFigures]) -> str:
    if sum(run.clear.samples for run in runs) < _FEWEST_QUIET:
        return "No verdict: too few gaps without a long prompt to compare with; take a longer warm-up."
    inside = sum(run.stalls for run in runs)
    outside = sum(run.stalls_outside for run in runs)
    time_inside = sum(run.window_seconds for run in runs)
    time_outside = sum(run.quiet_seconds for run in runs)
    if outside and outside / max(time_outside, 1e-9) > 0.5 * inside / max(time_inside, 1e-9):
        return (
            f"No verdict: the victims stalled {outside} times without any long prompt as well, about as often as with. "
            "Something else disturbs this server or this client; try again when it is quiet."
        )
    return ""


def _times(ratio: float) -> str:
    return f"{ratio:.0f} times" if ratio >= 9.5 else f"{ratio:.1f} times"


def _longer(response: Response, work_seconds: float) -> str:
    """What it would take."""
    if response.cost is None:
        return ""
    tokens = response.cost.tokens_for(work_seconds)
    if not response.points[-1].prompt_tokens < tokens <= _LONGEST_NAMED:
        return ""
    return f" By its cost a prompt would need about {round(tokens, -3):,} tokens to be felt as a stall."
