"""Whether a model on a machine can show the effect: by the work of a prompt over a step."""

from __future__ import annotations

import dataclasses

from tests.lab.probe.timelines import answer, run_of, steady

from prefillwatch.analysis.settings import StallRule
from prefillwatch.lab.probe.figures import RunFigures, measure
from prefillwatch.lab.probe.response import respond
from prefillwatch.lab.probe.verdict import Effect, Verdict, judge


def judged(*runs: RunFigures) -> Verdict:
    return judge(runs, respond(runs), StallRule())


def beats(*gaps_ms: float, step_ms: float = 20) -> RunFigures:
    """A victim that steps calmly for two seconds, then with these gaps while a prompt is taken in, then calmly."""
    reads = steady(1, 2001, step_ms)
    for gap in gaps_ms:
        reads.append(reads[-1] + gap)
    released = reads[-1]
    reads += steady(released + step_ms, released + 2000, step_ms)
    prompt = answer(2000.5, [released], prompt_tokens=6000)
    return measure(run_of(answer(0, reads), injected=[prompt]))


def test_a_long_gap_is_a_freeze() -> None:
    verdict = judged(beats(820))
    assert verdict.effect is Effect.FREEZES
    assert "a prompt of 6,000 tokens is 800 ms of work, 40 times the 20 ms" in verdict.sentence
    assert "Such prompts stall the victims: the longest gap grew by 800 ms." in verdict.sentence


def test_where_prompts_differ_it_is_the_mean_that_is_judged() -> None:
    run = beats(820)
    run = dataclasses.replace(run, prompts=(run.prompts[0], dataclasses.replace(run.prompts[0], asked_tokens=100)))
    assert "a prompt of 6,000 tokens, the mean here, is" in judged(run).sentence


def test_the_same_work_in_slow_beats_is_sliced() -> None:
    verdict = judged(beats(*[60] * 20))
    assert verdict.effect is Effect.SLICED
    assert "no gap grew by more than 40 ms, which is no stall" in verdict.sentence


def test_a_beat_or_two_is_hardly_an_effect() -> None:
    verdict = judged(beats(60))
    assert verdict.effect is Effect.HARDLY
    assert "By its cost a prompt would need about 12,000 tokens to be felt as a stall." in verdict.sentence


def test_less_than_a_step_is_none() -> None:
    verdict = judged(beats(22, 22))
    assert verdict.effect is Effect.NONE
    assert "0.2 times the 20 ms that a step takes without it" in verdict.sentence


def test_streams_that_stall_without_prompts_as_well_allow_no_verdict() -> None:
    reads = [*steady(1, 1001), *steady(1501, 2001), 2801, *steady(3301, 4001), *steady(4501, 5001)]
    run = run_of(answer(0, reads), injected=[answer(1900, [3990], prompt_tokens=6000)])
    verdict = judged(measure(run))
    assert verdict.effect is Effect.UNCLEAR
    assert "stalled 2 times without any long prompt as well" in verdict.sentence


def test_too_few_calm_gaps_allow_no_verdict() -> None:
    run = run_of(answer(0, [1, 21, 41, 841]), injected=[answer(40, [840], prompt_tokens=6000)])
    assert judged(measure(run)).effect is Effect.UNCLEAR


def test_nothing_measured_allows_no_verdict() -> None:
    assert judged().effect is Effect.UNCLEAR
    silent = measure(run_of(answer(0, []), injected=[answer(990, [1795])], ended_ms=2000))
    assert judged(silent).effect is Effect.UNCLEAR
