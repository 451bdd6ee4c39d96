"""What the figures mean, in words: the same in the terminal and on the page. Pure.

A p99 is a promise about the worst hundredth of a population, and so depends on what else is in it. A freeze that is
severe but brief falls into the last hundredth of the whole run and is not seen there; milder trouble that lasts longer
is. Then a setting can look better by one p99 and worse by the other.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from prefillwatch.lab.probe.figures import RunFigures, Spread
from prefillwatch.lab.probe.response import Response
from prefillwatch.report import counted, duration, share

#: Two p99 that differ by less than this factor say the same.
_ALIKE: Final = 1.5
#: A difference between two servers that is worth a word.
_DIFFERENT: Final = 1.1


def on_the_tail(run: RunFigures) -> str:
    """Whether the p99 over all tokens and the p99 of the injection window agree, and if not, why."""
    overall, window = run.overall.p99_seconds, run.window.p99_seconds
    if overall is None or window is None:
        return "No gap fell into the injection window, so there is nothing to compare."
    stalled = f"{run.stalls} stalled gaps are {share(run.stalls, run.overall.samples)} of all"
    if window < _ALIKE * overall:
        said = (
            f"Both populations tell the same: p99 is {duration(overall)} over all and {duration(window)} in the window"
        )
        return f"{said}; the {stalled}, enough to reach the worst 1 %." if run.stalls else f"{said}."
    return (
        f"The two p99 disagree: {duration(overall)} over all {run.overall.samples:,} gaps, {duration(window)} over the "
        f"{run.window.samples:,} of the injection window. {_why_they_disagree(run, stalled)}"
    )


def _why_they_disagree(run: RunFigures, stalled: str) -> str:
    if not run.stalls:
        return "No gap was a stall, but gaps were longer while prompts were taken in; the calm ones outnumber them."
    if run.stalls < 0.01 * run.overall.samples:
        return (
            f"The freeze is real and brief: the {stalled}, so they fall outside the worst 1 % and p99 over everything "
            "does not see them. The window is the figure to trust."
        )
    return f"The {stalled}; the calm ones dilute them. The window is the figure to trust."


def on_stalls(run: RunFigures, victims: int) -> str:
    if not run.stalls:
        return "No gap in the injection window was a stall."
    each = run.stall_seconds / max(run.stalled_victims, 1)
    return (
        f"{run.stalls} gaps of {run.stalled_victims} of {victims} victims were stalls, "
        f"{duration(run.stall_seconds)} in all beyond their usual gap: {duration(each)} per stalled victim, in the "
        f"{duration(run.window_seconds)} of the injection window."
    )


def on_first_tokens(run: RunFigures) -> str:
    times = sorted(prompt.ttft_seconds for prompt in run.prompts if prompt.ttft_seconds is not None)
    failed = len(run.prompts) - len(times)
    lost = f" {failed} got none." if failed else ""
    if not times:
        return f"No long prompt got a first token.{lost}"
    if len(times) == 1:
        return f"The long prompt got its first token after {duration(times[0])}.{lost}"
    return (
        f"The {len(run.prompts)} long prompts got their first tokens after {duration(times[0])} (first), "
        f"{duration(statistics.median(times))} (median) and {duration(times[-1])} (last).{lost}"
    )


def on_cost(response: Response) -> str:
    """The fitted cost; the formula is that of `response.Cost`."""
    cost = response.cost
    if cost is None:
        return "Work does not grow with prompt tokens here, so there is no cost to tell."
    said = f"The work of a prompt: {duration(1000 * cost.token_seconds)} per 1,000 uncached tokens"
    if cost.context_seconds:
        said += f", {duration(1e6 * cost.context_seconds)} more for every 1,000 tokens of context before them"
    if cost.base_seconds:
        said += f", and {duration(cost.base_seconds)} for any prompt"
    if cost.fit is None:
        return f"{said} (time added to a victim over tokens; 3 sizes or more would allow a fit)."
    return f"{said} (fitted to {len(response.points)} sizes, R² {cost.fit:.3f})."


def on_growth(response: Response) -> str:
    """Where the added gap stops growing, which shows chunks; empty where it does not."""
    if response.levels_off_at is None:
        return ""
    return (
        f"From {response.levels_off_at:,} tokens on a longer prompt makes hardly a longer gap, but more of them: the "
        "server takes prompts in chunks."
    )


def on_trouble(runs: Sequence[RunFigures]) -> list[str]:
    """What a reader must know before believing the figures."""
    found = []
    cached = sum(prompt.cached_tokens or 0 for run in runs for prompt in run.prompts)
    total = sum(prompt.prompt_tokens for run in runs for prompt in run.prompts)
    if cached > 0.05 * total:
        found.append(f"{share(cached, total)} of the long prompts' tokens came from the prefix cache and cost little.")
    if restarts := sum(run.restarts for run in runs):
        found.append(
            f"{counted(restarts, 'answer')} of victims ended inside an injection window; until the next began they "
            "could not show a stall, so stalls are undercounted."
        )
    if silent := sum(run.silent for run in runs):
        found.append(
            f"{counted(silent, 'victim')} had used up all tokens before the long prompts were taken in; allow more by "
            "--victim-tokens."
        )
    worst = max((p.prompt_tokens - p.asked_tokens for run in runs for p in run.prompts), key=abs, default=0)
    if worst:
        found.append(f"Prompts were up to {abs(worst):,} tokens {'longer' if worst > 0 else 'shorter'} than asked for.")
    if lost := sum(run.failed_victims for run in runs):
        found.append(
            f"{counted(lost, 'victim')} lost an answer to an error, so there are fewer gaps than there should be."
        )
    failed = [prompt.error for run in runs for prompt in run.prompts if prompt.error and prompt.ttft_seconds is None]
    if failed:
        found.append(f"{counted(len(failed), 'long prompt')} failed, the first with: {failed[0]}.")
    return found


@dataclass(frozen=True, slots=True)
class Side:
    """One of two servers or settings that are compared."""

    name: str
    overall: Spread
    window: Spread


def compare(before: Side, now: Side) -> str:
    """Which of two is better for the victims, by each population, and what to believe when they contradict each
    other."""
    by_all = _verdict(before.overall.p99_seconds, now.overall.p99_seconds)
    by_window = _verdict(before.window.p99_seconds, now.window.p99_seconds)
    figures = (
        f"p99 over all tokens {duration(before.overall.p99_seconds)} ({before.name}) against "
        f"{duration(now.overall.p99_seconds)} ({now.name}), in the injection window "
        f"{duration(before.window.p99_seconds)} against {duration(now.window.p99_seconds)}"
    )
    if by_all * by_window < 0:
        better, worse = (before.name, now.name) if by_window > 0 else (now.name, before.name)
        return (
            f"The sign flips with the population: {figures}. By all tokens {worse} looks better, and it is not: its "
            "stalls are so few that they fall outside the worst 1 % of the run. Among the tokens that were streaming "
            f"while the prompts were taken in, {better} is better."
        )
    if not by_all and not by_window:
        return f"No difference that counts: {figures}."
    best, other = (before, now) if (by_window or by_all) > 0 else (now, before)
    factor = (other.window.p99_seconds or 0.0) / (best.window.p99_seconds or 1.0)
    agreed = "by both populations" if by_all and by_window else "by one population, the other sees no difference"
    return f"{best.name} is better for the victims, {agreed}: {figures} ({factor:.1f} × in the window)."


def _verdict(before: float | None, now: float | None) -> int:
    """1 where now is worse, -1 where it is better, 0 where there is no telling."""
    if not before or not now:
        return 0
    return 1 if now > _DIFFERENT * before else -1 if before > _DIFFERENT * now else 0
