"""Advice: a budget with its price, or the reason why there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prefillwatch.analysis.cost.advice import Server, advise, read_alone
from prefillwatch.analysis.cost.law import StepLaw

#: 21 ms without a prompt, 0.2 ms per prompt token, as learned from steps of up to 2,042 tokens.
LAW = StepLaw(200_000.0, base_ns=21e6, fit=0.95, steps=100, largest=2042)


def test_the_largest_budget_that_keeps_the_gap_under_its_target() -> None:
    advice = advise(LAW, 0.2, Server(budget=2048, decoding=6), 6000)
    assert advice.tokens is not None
    assert LAW.step_ns(advice.tokens - 6) <= 0.2e9
    assert LAW.step_ns(advice.tokens - 6 + 16) > 0.2e9
    assert f"max_num_batched_tokens={advice.tokens}" in advice.words


def test_it_names_the_price_in_time_to_first_token() -> None:
    advice = advise(LAW, 0.1, Server(budget=2048, decoding=6), 6000)
    assert advice.ttft_now_s == pytest.approx(3 * 0.021 + 6000 * 0.0002)
    assert advice.ttft_then_s is not None
    assert advice.ttft_now_s is not None
    assert advice.ttft_then_s > advice.ttft_now_s
    assert f"{advice.ttft_then_s:.2f} s" in advice.words


def test_a_tighter_target_asks_for_a_smaller_budget() -> None:
    advised = [advise(LAW, target, Server(budget=2048), 6000).tokens for target in (0.3, 0.2, 0.1, 0.05)]
    budgets = [tokens for tokens in advised if tokens is not None]
    assert budgets == sorted(budgets, reverse=True)
    assert len(set(budgets)) == 4


def test_whole_prompts_per_step_ask_for_chunks_first() -> None:
    advice = advise(LAW, 0.2, Server(budget=8192, chunked=False), 6000)
    assert "chunked prefill on" in advice.words


def test_no_advice_before_there_is_data() -> None:
    advice = advise(None, 0.2, Server(), 0, steps_seen=3)
    assert advice.tokens is None
    assert "3 engine steps" in advice.words


def test_no_advice_from_a_poor_fit() -> None:
    advice = advise(replace(LAW, fit=0.3), 0.2, Server(), 6000)
    assert advice.tokens is None
    assert "30%" in advice.words


def test_a_model_too_small_for_the_effect() -> None:
    advice = advise(StepLaw(500.0, base_ns=4e6, fit=0.9, steps=100, largest=2042), 0.2, Server(budget=2048), 6000)
    assert advice.tokens is None
    assert "hardly slow anybody" in advice.words


def test_a_target_below_the_clear_step_cannot_be_met() -> None:
    advice = advise(LAW, 0.02, Server(budget=2048), 6000)
    assert advice.tokens is None
    assert "no budget" in advice.words


def test_a_budget_that_fits_already_is_left_alone() -> None:
    advice = advise(LAW, 0.5, Server(budget=2048), 6000)
    assert advice.tokens is not None
    assert advice.tokens >= 2048
    assert "within the target" in advice.words


def test_nothing_is_said_far_beyond_what_was_seen() -> None:
    advice = advise(LAW, 60.0, Server(budget=2048), 6000)
    assert advice.tokens is None


@pytest.mark.parametrize(("fit", "advised"), [(0.45, False), (0.55, True)])
def test_half_of_the_step_times_must_be_explained(fit: float, advised: bool) -> None:
    assert (advise(replace(LAW, fit=fit), 0.2, Server(budget=2048), 6000).tokens is not None) == advised


@pytest.mark.parametrize(("full_ms", "advised"), [(39, False), (45, True)])
def test_a_full_step_up_to_two_clear_ones_is_hardly_noticed(full_ms: float, advised: bool) -> None:
    law = StepLaw((full_ms - 20) * 1e6 / 2000, base_ns=20e6, fit=0.95, steps=100, largest=2000)
    assert (advise(law, 0.035, Server(), 6000).tokens is not None) == advised


@pytest.mark.parametrize(
    ("target_s", "advised"), [(0.021 + 4.2 * 2042 * 2e-4, False), (0.021 + 3.8 * 2042 * 2e-4, True)]
)
def test_the_line_is_trusted_up_to_four_times_the_fullest_step(target_s: float, advised: bool) -> None:
    assert (advise(LAW, target_s, Server(), 6000).tokens is not None) == advised


def test_a_prompt_read_alone_takes_steps_that_are_full_but_for_the_last() -> None:
    alone = read_alone(LAW, 6000, 2042)
    assert (alone.steps, alone.longest_s) == (3, pytest.approx(0.021 + 2042 * 0.0002))
    assert alone.first_token_s == pytest.approx(3 * 0.021 + 6000 * 0.0002)
    assert read_alone(LAW, 300, 2042).longest_s == pytest.approx(0.021 + 300 * 0.0002)
