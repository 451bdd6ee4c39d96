"""The published experiment on the simulated engine in virtual time: its table and its trap in the report's words."""

from __future__ import annotations

import functools

import pytest
from tests.lab.probe.timelines import virtual_run

from prefillwatch.lab.probe import sentences
from prefillwatch.lab.probe.figures import RunFigures, measure
from prefillwatch.lab.probe.response import respond
from prefillwatch.lab.probe.sentences import Side, compare
from prefillwatch.lab.probe.settings import ProbeSettings
from prefillwatch.lab.probe.verdict import Effect, judge

RULE = ProbeSettings().stall


@functools.cache
def article(prompts: int, *, chunked: bool) -> RunFigures:
    return measure(virtual_run("article", prompts, chunked=chunked))


def side(prompts: int, *, chunked: bool) -> Side:
    figures = article(prompts, chunked=chunked)
    return Side(f"chunked prefill {'on' if chunked else 'off'}", figures.overall, figures.window)


@pytest.mark.parametrize(("chunked", "p99"), [(True, 0.345), (False, 0.831)])
def test_twelve_prompts_give_the_published_p99_and_leave_the_median_alone(chunked: bool, p99: float) -> None:
    figures = article(12, chunked=chunked)
    assert figures.overall.p99_seconds == pytest.approx(p99, rel=0.03)
    assert figures.overall.p50_seconds == pytest.approx(0.021, rel=0.03)
    assert figures.stalled_victims == 6


def test_with_twelve_prompts_both_populations_call_chunked_prefill_better() -> None:
    said = compare(side(12, chunked=True), side(12, chunked=False))
    assert said.startswith("chunked prefill on is better for the victims, by both populations")


def test_with_three_prompts_the_p99_over_all_tokens_flips_sign_and_the_window_does_not() -> None:
    on, off = article(3, chunked=True), article(3, chunked=False)
    assert on.overall.p99_seconds == pytest.approx(0.325, rel=0.05)
    assert off.overall.p99_seconds is not None
    assert off.overall.p99_seconds < 0.103
    assert off.window.p99_seconds == pytest.approx(0.825, rel=0.02)
    assert on.window.p99_seconds is not None
    assert off.window.p99_seconds is not None
    assert off.window.p99_seconds > 2 * on.window.p99_seconds


def test_the_report_says_that_the_sign_flips_and_which_figure_to_trust() -> None:
    said = compare(side(3, chunked=True), side(3, chunked=False))
    assert said.startswith("The sign flips with the population: p99 over all tokens")
    assert "By all tokens chunked prefill off looks better, and it is not" in said
    assert said.endswith("chunked prefill on is better.")
    assert compare(side(3, chunked=False), side(3, chunked=True)).endswith("chunked prefill on is better.")


def test_one_report_alone_says_why_its_two_p99_disagree() -> None:
    said = sentences.on_the_tail(article(3, chunked=False))
    assert said.startswith("The two p99 disagree")
    assert "the 18 stalled gaps are 0.8 % of all, so they fall outside the worst 1 %" in said
    assert said.endswith("The window is the figure to trust.")
    assert sentences.on_the_tail(article(12, chunked=False)).startswith("Both populations tell the same")


def test_the_large_model_shows_the_effect() -> None:
    runs = [article(12, chunked=False)]
    verdict = judge(runs, respond(runs), RULE)
    assert verdict.effect is Effect.FREEZES
    assert verdict.ratio == pytest.approx(39, rel=0.1)


def test_the_small_model_cannot_show_it_whatever_the_setting() -> None:
    for chunked in (True, False):
        runs = [measure(virtual_run("small", 3, chunked=chunked))]
        verdict = judge(runs, respond(runs), RULE)
        assert verdict.effect is Effect.NONE
        assert "that says nothing about a larger model" in verdict.sentence


SIZES = (500, 1000, 2000, 4000, 7000)


def dose_runs(*, chunked: bool) -> list[RunFigures]:
    return [measure(virtual_run("article", 1, chunked=chunked, prompt_tokens=size)) for size in SIZES]


def test_without_chunks_the_added_gap_grows_with_the_prompt() -> None:
    response = respond(dose_runs(chunked=False))
    assert response.levels_off_at is None
    for point in response.points:
        assert point.added_gap_seconds == pytest.approx(point.work_seconds, rel=0.05)
    assert response.cost is not None
    assert response.cost.fit is not None
    assert response.cost.fit > 0.999
    # What the preset says a prompt token costs, and what it adds for context.
    assert response.cost.token_seconds == pytest.approx(94.2e-6, rel=0.02)
    assert response.cost.context_seconds == pytest.approx(12e-9, rel=0.05)
    assert response.cost.base_seconds == pytest.approx(0.028, rel=0.1)


def test_with_chunks_the_added_gap_levels_off_at_the_step_budget_while_the_work_grows() -> None:
    response = respond(dose_runs(chunked=True))
    assert response.levels_off_at == 2000
    assert "takes prompts in chunks" in sentences.on_growth(response)
    longest, budget = response.points[-1], response.points[2]
    assert longest.work_seconds > 3.5 * budget.work_seconds
    assert longest.added_gap_seconds < 2 * budget.added_gap_seconds
