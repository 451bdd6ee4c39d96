"""Added gap, work and cost over prompt sizes."""

from __future__ import annotations

import dataclasses

import pytest
from tests.lab.probe.test_verdict import beats

from prefillwatch.lab.probe.figures import RunFigures
from prefillwatch.lab.probe.response import Cost, respond
from prefillwatch.lab.probe.sentences import on_cost


def sized(tokens: int, *gaps_ms: float, cached: int = 0) -> RunFigures:
    run = beats(*gaps_ms)
    prompt = dataclasses.replace(run.prompts[0], prompt_tokens=tokens, cached_tokens=cached, asked_tokens=tokens)
    return dataclasses.replace(run, prompt_tokens=tokens, prompts=(prompt,))


def test_the_line_through_the_work_is_the_cost() -> None:
    runs = [sized(tokens, 30 + 0.1 * tokens) for tokens in (1000, 2000, 4000, 8000)]
    cost = respond(runs).cost
    assert cost is not None
    assert cost.token_seconds == pytest.approx(100e-6, rel=0.01)
    assert cost.base_seconds == pytest.approx(0.010, rel=0.05)
    assert cost.fit == pytest.approx(1.0, abs=0.001)
    assert cost.tokens_for(0.81) == pytest.approx(8000, rel=0.01)
    assert on_cost(respond(runs)) == (
        "The work of a prompt: 100 ms per 1,000 uncached prompt tokens plus 10.0 ms "
        "(robust line through all runs, R² 1.00)."
    )


def test_one_size_gives_a_cost_without_a_line() -> None:
    response = respond([sized(4000, 420)])
    assert response.cost == Cost(pytest.approx(100e-6, rel=0.01))
    assert "3 sizes would give a line" in on_cost(response)


def test_cached_tokens_cost_nothing() -> None:
    assert respond([sized(4000, 220, cached=2000)]).points[0].prompt_tokens == 2000


def test_repeats_are_a_median_and_a_range() -> None:
    (point,) = respond([sized(4000, gap) for gap in (420, 440, 520)]).points
    assert point.added_gap_seconds == pytest.approx(0.42)
    assert point.added_gap_range == pytest.approx((0.40, 0.50))


def test_one_run_with_a_hiccup_does_not_bend_the_line() -> None:
    runs = [sized(tokens, 20 + 0.1 * tokens) for tokens in (1000, 2000, 4000, 8000) for _ in range(2)]
    cost = respond([*runs, sized(2000, 1220)]).cost
    assert cost is not None
    assert cost.token_seconds == pytest.approx(100e-6, rel=0.05)


def test_work_that_does_not_grow_has_no_cost() -> None:
    response = respond([sized(tokens, 20) for tokens in (1000, 2000, 4000)])
    assert response.cost is None
    assert "there is no cost to tell" in on_cost(response)


def test_longer_prompts_that_cost_more_per_token_are_worth_a_word() -> None:
    runs = [sized(1000, 120), sized(2000, 220), sized(4000, 620)]
    assert "Long prompts cost more per token" in on_cost(respond(runs))


def test_nothing_gives_nothing() -> None:
    assert respond([]).points == ()
