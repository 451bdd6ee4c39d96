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


def test_work_that_grows_with_tokens_is_a_price_per_token() -> None:
    cost = respond([sized(tokens, 20 + 0.1 * tokens) for tokens in (1000, 2000, 4000, 8000)]).cost
    assert cost is not None
    assert cost.token_seconds == pytest.approx(100e-6, rel=0.001)
    assert (cost.context_seconds, cost.base_seconds) == (0, 0)
    assert cost.fit == pytest.approx(1.0)
    assert cost.tokens_for(0.8) == 8000


def test_what_any_prompt_costs_is_told_apart() -> None:
    response = respond([sized(tokens, 50 + 0.1 * tokens) for tokens in (500, 1000, 2000, 4000, 8000)])
    cost = response.cost
    assert cost is not None
    assert (cost.token_seconds, cost.base_seconds) == (pytest.approx(100e-6, rel=0.01), pytest.approx(0.03, rel=0.02))
    assert on_cost(response) == (
        "The work of a prompt: 100 ms per 1,000 uncached tokens, and 30 ms for any prompt "
        "(fitted to 5 sizes, R² 1.000)."
    )


def test_attention_makes_long_prompts_dearer() -> None:
    response = respond([sized(n, 20 + 0.1 * n + 0.00002 * n * n / 2) for n in (500, 1000, 2000, 4000, 8000)])
    cost = response.cost
    assert cost is not None
    assert cost.token_seconds == pytest.approx(100e-6, rel=0.01)
    assert cost.context_seconds == pytest.approx(20e-9, rel=0.01)
    assert cost.work_seconds(8000) == pytest.approx(1.44, rel=0.01)
    assert cost.tokens_for(1.44) == pytest.approx(8000, rel=0.01)
    assert "20 ms more for every 1,000 tokens of context before them" in on_cost(response)


def test_one_size_gives_a_cost_without_a_line() -> None:
    response = respond([sized(4000, 420)])
    assert response.cost is not None
    assert response.cost == Cost(response.cost.token_seconds)
    assert response.cost.token_seconds == pytest.approx(100e-6, rel=0.01)
    assert "3 sizes or more would allow a fit" in on_cost(response)


def test_cached_tokens_cost_nothing() -> None:
    assert respond([sized(4000, 220, cached=2000)]).points[0].prompt_tokens == 2000


def test_repeats_are_a_median_and_a_range() -> None:
    (point,) = respond([sized(4000, gap) for gap in (420, 440, 520)]).points
    assert point.added_gap_seconds == pytest.approx(0.42)
    assert point.added_gap_range == pytest.approx((0.40, 0.50))


def test_one_repeat_with_a_hiccup_does_not_bend_the_curve() -> None:
    runs = [sized(tokens, 20 + 0.1 * tokens) for tokens in (1000, 2000, 4000, 8000) for _ in range(2)]
    cost = respond([*runs, sized(2000, 1220)]).cost
    assert cost is not None
    assert cost.token_seconds == pytest.approx(100e-6, rel=0.01)


def test_two_sizes_are_too_few_to_say_how_well_a_formula_fits() -> None:
    cost = respond([sized(1000, 120), sized(2000, 220)]).cost
    assert cost is not None
    assert cost.fit is None


def test_work_that_does_not_grow_has_no_cost() -> None:
    response = respond([sized(tokens, 20) for tokens in (1000, 2000, 4000)])
    assert response.cost is None
    assert "there is no cost to tell" in on_cost(response)


def test_nothing_gives_nothing() -> None:
    assert respond([]).points == ()
