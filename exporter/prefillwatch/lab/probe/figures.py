"""From the raw times of a run to its figures. Pure.

The victims' gaps are taken twice: all of them, and those of the injection window, while any long prompt waited for its
first token. A percentile means nothing without the population behind it.
"""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from prefillwatch.analysis.settings import StallRule
from prefillwatch.lab.client import Answer
from prefillwatch.lab.probe.timeline import Run
from prefillwatch.units import NS

#: Clear gaps below which a victim has no baseline of its own.
_FEWEST_FOR_BASELINE: Final = 5


@dataclass(frozen=True, slots=True)
class Gap:
    """Between two reads of one answer; the second brought `events` events with text."""

    victim: int
    start_ns: int
    end_ns: int
    events: int = 1

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / NS

    def overlaps(self, start_ns: int, end_ns: int) -> bool:
        return self.end_ns > start_ns and self.start_ns < end_ns


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles (linear between ranks) of a population of gaps; None where it is empty."""

    samples: int
    p50_seconds: float | None = None
    p99_seconds: float | None = None
    max_seconds: float | None = None

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        if not seconds:
            return cls(0)
        p50, p99 = np.percentile(np.asarray(seconds), (50, 99)).tolist()
        return cls(len(seconds), p50, p99, max(seconds))


@dataclass(frozen=True, slots=True)
class Injected:
    """One long prompt. `prompt_tokens` by the server's usage where it told; no first token: None."""

    prompt_tokens: int
    cached_tokens: int | None
    ttft_seconds: float | None
    error: str = ""
    asked_tokens: int = 0


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Figures of one run. A stall is what `StallRule` says, by the victim's own baseline."""

    prompt_tokens: int
    repeat: int
    overall: Spread
    window: Spread
    #: Gaps outside the window.
    clear: Spread
    #: Median gap of the warm-up.
    baseline_seconds: float | None
    warmup_worst_seconds: float | None
    window_seconds: float
    stalls: int
    #: Seconds by which the stalls went beyond the baseline, summed over victims.
    stall_seconds: float
    stalled_victims: int
    #: Stalls while all victims streamed and no prompt was in prefill: what the machine does by itself.
    stalls_outside: int
    #: Length of that time.
    quiet_seconds: float
    #: The longest gap in the window beyond the baseline: what a reader sees as a freeze. 0 where there is none.
    worst_added_seconds: float
    #: Sum over the window of the time by which gaps went beyond the baseline, as a mean over the victims that streamed
    #: in it. It ends at the last first token: how much work a prompt was that got no first token is not known.
    added_seconds: float
    #: Victims' answers that ended in the window. Until the next one begins, such a victim is silent for no fault of the
    #: server.
    restarts: int
    #: Victims that had used up all their tokens before the window's end.
    silent: int
    #: Victims with an answer that broke off.
    failed_victims: int
    prompts: tuple[Injected, ...]
    problem: str = ""

    @property
    def taken_in(self) -> int:
        """Long prompts that got a first token."""
        return sum(prompt.ttft_seconds is not None for prompt in self.prompts)

    @property
    def work_seconds(self) -> float | None:
        """Seconds that one long prompt added to a victim, over all steps; None where no prompt got a first token."""
        return self.added_seconds / self.taken_in if self.taken_in and self.window.samples else None


def measure(run: Run, rule: StallRule | None = None) -> RunFigures:
    """The figures of a run, whole or cut short."""
    gaps = victim_gaps(run)
    start_ns, end_ns, window = run.injected_ns, run.released_ns, run.window()
    inside, outside = split(gaps, window)
    before = [gap for gap in gaps if gap.start_ns >= run.streaming_ns and (not start_ns or gap.end_ns <= start_ns)]
    baselines = _baselines(before, len(run.victims))
    baseline = statistics.median(_seconds(before)) if before else None
    quiet = [gap for gap in outside if run.streaming_ns and gap.start_ns >= run.streaming_ns]
    used = rule or StallRule()
    stalls = [gap for gap in inside if is_stall(gap, baselines[gap.victim], used)]
    window_seconds = sum(end - start for start, end in window) / NS
    last_first_token_ns = max((answer.reads_ns[0] for answer in run.injected if answer.reads_ns), default=0)
    last_answers = [answers[-1] for answers in run.victims if answers]
    return RunFigures(
        prompt_tokens=run.prompt_tokens,
        repeat=run.repeat,
        overall=Spread.of(_seconds(gaps)),
        window=Spread.of(_seconds(inside)),
        clear=Spread.of(_seconds(outside)),
        baseline_seconds=baseline,
        warmup_worst_seconds=max(_seconds(before), default=None),
        window_seconds=window_seconds,
        stalls=len(stalls),
        stall_seconds=sum(_excess(gap, baselines[gap.victim]) for gap in stalls),
        stalled_victims=len({gap.victim for gap in stalls}),
        stalls_outside=sum(is_stall(gap, baselines[gap.victim], used) for gap in quiet),
        quiet_seconds=max(0.0, (run.ended_ns - run.streaming_ns) / NS - window_seconds) if run.streaming_ns else 0.0,
        worst_added_seconds=max((_excess(gap, baselines[gap.victim]) for gap in inside), default=0.0),
        added_seconds=_added([gap for gap in inside if gap.start_ns < last_first_token_ns], baselines),
        restarts=sum(_restarts(answers, window) for answers in run.victims),
        silent=sum(answer.complete and answer.closed_ns < end_ns for answer in last_answers),
        failed_victims=sum(any(answer.error for answer in answers) for answers in run.victims),
        prompts=_prompts(run),
        problem=run.problem,
    )


def victim_gaps(run: Run) -> list[Gap]:
    """All gaps of all victims, within answers: the time between two answers is no gap."""
    return [
        Gap(victim, start, end, events)
        for victim, answers in enumerate(run.victims)
        for answer in answers
        for (start, end), events in zip(itertools.pairwise(answer.reads_ns), answer.read_events[1:], strict=False)
    ]


def split(gaps: Sequence[Gap], window: Sequence[tuple[int, int]]) -> tuple[list[Gap], list[Gap]]:
    """Gaps that overlap a time of the window (see `Run.window`), and the others."""
    starts, ends = [start for start, _ in window], [end for _, end in window]
    inside: list[Gap] = []
    outside: list[Gap] = []
    for gap in gaps:
        # The times are in order and apart, so only the last that began before the gap's end can reach into it.
        last = bisect.bisect_left(starts, gap.end_ns) - 1
        (inside if last >= 0 and ends[last] > gap.start_ns else outside).append(gap)
    return inside, outside


def is_stall(gap: Gap, baseline_s: float | None, rule: StallRule) -> bool:
    """Whether a gap is a stall by its token events."""
    return rule.holds(gap.seconds, baseline_s, max(gap.events, 1))


def _baselines(before: Iterable[Gap], victims: int) -> list[float | None]:
    """Each victim's median gap per token event before the injection, the median of all where it has too few."""
    per_token: list[list[float]] = [[] for _ in range(victims)]
    for gap in before:
        per_token[gap.victim].append(gap.seconds / max(gap.events, 1))
    together = [seconds for own in per_token for seconds in own]
    common = statistics.median(together) if together else None
    return [statistics.median(own) if len(own) >= _FEWEST_FOR_BASELINE else common for own in per_token]


def _excess(gap: Gap, baseline_s: float | None) -> float:
    return max(0.0, gap.seconds - max(gap.events, 1) * (baseline_s or 0.0))


def _added(inside: Sequence[Gap], baselines: Sequence[float | None]) -> float:
    victims = {gap.victim for gap in inside}
    # Signed, so that the jitter of quiet gaps cancels out instead of adding up.
    total = sum(gap.seconds - max(gap.events, 1) * (baselines[gap.victim] or 0.0) for gap in inside)
    return max(0.0, total / len(victims)) if victims else 0.0


def _restarts(answers: Sequence[Answer], window: Sequence[tuple[int, int]]) -> int:
    ends = [answer.reads_ns[-1] for answer in answers[:-1] if answer.reads_ns and not answer.error]
    return sum(start < end_ns < end for end_ns in ends for start, end in window)


def _prompts(run: Run) -> tuple[Injected, ...]:
    found = []
    asked = run.asked_tokens or [run.prompt_tokens] * len(run.injected)
    for answer, tokens in zip(run.injected, asked, strict=False):
        error = answer.error or (f"HTTP {answer.status}" if answer.status not in (0, 200) else "")
        known = answer.prompt_tokens or tokens
        found.append(Injected(known, answer.cached_tokens, answer.ttft_seconds, error, tokens))
    return tuple(found)


def _seconds(gaps: Iterable[Gap]) -> list[float]:
    return [gap.seconds for gap in gaps]
