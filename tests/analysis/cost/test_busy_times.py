"""What prompt tokens cost, learned from busy times that also hold other things."""

import random

import pytest

from prefillwatch.analysis.cost.busy_times import Busy, low_quantile_law
from prefillwatch.analysis.cost.law import StepLaw
from prefillwatch.analysis.tuning import DEFAULT
from prefillwatch.units import MS

TRUE = StepLaw(token_ns=120_000.0, context_ns=12.0, mixed_ns=25.0 * MS)


def fit(busy: list[Busy]) -> StepLaw:
    return low_quantile_law(busy, DEFAULT.cost)


def busy(tokens: int, before: int = 0, cost: StepLaw = TRUE, disturbed_ns: float = 0.0) -> Busy:
    excess_ns = cost.expect_ns(tokens, before) + disturbed_ns
    return Busy(1, tokens, tokens * (before + tokens / 2), round(excess_ns))


def test_nothing_seen_nothing_known() -> None:
    cost = fit([])
    assert not cost.known
    assert cost.expect_ns(1000) == 0
    assert cost.tokens_in(1e12) > 10**9


def test_one_busy_time_gives_a_price_per_token() -> None:
    cost = fit([Busy(3, 6000, 0, 900 * MS)])
    assert cost.token_ns == pytest.approx(150_000)
    assert not cost.trusted


def test_all_three_terms_are_found() -> None:
    rng = random.Random(1)
    steps = [busy(rng.choice((40, 300, 800, 2000)), rng.choice((0, 0, 2000, 8000))) for _ in range(80)]
    cost = fit(steps)
    assert cost.trusted
    assert cost.token_ns == pytest.approx(TRUE.token_ns, rel=0.05)
    assert cost.context_ns == pytest.approx(TRUE.context_ns, rel=0.05)
    assert cost.mixed_ns == pytest.approx(TRUE.mixed_ns, rel=0.05)


def test_pauses_and_recomputations_do_not_raise_it() -> None:
    linear = StepLaw(token_ns=300_000.0)
    steps = [busy(300, cost=linear) for _ in range(10)] + [busy(300, cost=linear, disturbed_ns=9e9) for _ in range(8)]
    assert fit(steps).token_ns == pytest.approx(300_000, rel=0.02)


def test_most_of_few_busy_times_may_be_disturbed() -> None:
    linear = StepLaw(token_ns=300_000.0)
    disturbed = [busy(300, cost=linear, disturbed_ns=each) for each in (0.6e9, 1.5e9, 2.5e9)]
    assert fit([busy(300, cost=linear), busy(300, cost=linear), *disturbed]).token_ns == pytest.approx(
        300_000, rel=0.02
    )


def test_one_step_that_was_far_too_short_does_not_lower_it() -> None:
    linear = StepLaw(token_ns=300_000.0)
    steps = [busy(300, cost=linear) for _ in range(6)] + [Busy(1, 437, 0, 8 * MS)]
    assert fit(steps).token_ns == pytest.approx(300_000, rel=0.02)


def test_tokens_in_a_time_is_the_inverse_of_the_time_of_tokens() -> None:
    for cost in (TRUE, StepLaw(token_ns=120_000.0)):
        for tokens in (1, 300, 2048, 100_000):
            assert cost.tokens_in(cost.expect_ns(tokens)) == tokens
        assert cost.tokens_in(0) == 0


def test_scaled() -> None:
    assert TRUE.scaled(0.5).expect_ns(1000, 500) == pytest.approx(TRUE.expect_ns(1000, 500) / 2)


def test_trusted_from_six_on() -> None:
    assert not fit([busy(300)] * 5).trusted
    assert fit([busy(300)] * 6).trusted
