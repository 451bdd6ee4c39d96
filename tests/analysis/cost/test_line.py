"""The law of step times against laws that are known."""

from __future__ import annotations

import numpy as np
import pytest

from prefillwatch.analysis.cost.line import huber_slope
from prefillwatch.analysis.cost.samples import StepSample, StepSamples
from prefillwatch.analysis.tuning import DEFAULT

BASE, COST = 0.021, 0.0002
FEWEST = DEFAULT.cost.fewest_steps


def steps(tokens: list[int], seed: int = 1, noise: float = 0.03) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    array = np.array(tokens, np.int64)
    return array, (BASE + COST * array) * (1 + rng.normal(0, noise, len(tokens)))


def learned(*batches: tuple[np.ndarray, np.ndarray]) -> StepSamples:
    samples = StepSamples(DEFAULT.cost)
    for batch in batches:
        add(samples, *batch)
    return samples


def add(samples: StepSamples, tokens: np.ndarray, seconds: np.ndarray) -> None:
    pairs = zip(tokens.tolist(), seconds.tolist(), strict=True)
    samples.add([StepSample(0, round(took * 1e9), 0, each, each) for each, took in pairs])


def test_base_and_cost_from_mixed_load() -> None:
    sizes = np.random.default_rng(2).integers(50, 2048, 300).tolist()
    law = learned(steps([0] * 300), steps(sizes)).line()
    assert law is not None
    assert law.base_ns / 1e9 == pytest.approx(BASE, rel=0.03)
    assert law.token_ns / 1e9 == pytest.approx(COST, rel=0.03)
    assert law.fit > 0.97
    assert law.largest == max(sizes)


def test_full_steps_alone_and_quiet_times_are_enough() -> None:
    law = learned(steps([0] * 50), steps([2042] * 20)).line()
    assert law is not None
    assert law.token_ns / 1e9 == pytest.approx(COST, rel=0.05)
    assert law.step_ns(1000) / 1e9 == pytest.approx(BASE + 1000 * COST, rel=0.05)


def test_pauses_do_not_bend_the_line() -> None:
    tokens, seconds = steps([0] * 100 + [300, 800, 1500, 2042] * 15)
    seconds[::9] += 2.0
    law = learned((tokens, seconds)).line()
    assert law is not None
    assert law.token_ns / 1e9 == pytest.approx(COST, rel=0.1)
    assert law.base_ns / 1e9 == pytest.approx(BASE, rel=0.1)


@pytest.mark.parametrize(("mixed", "quiet"), [(FEWEST - 1, 100), (100, FEWEST - 1), (0, 0)])
def test_too_little_teaches_nothing(mixed: int, quiet: int) -> None:
    assert learned(steps([500] * mixed + [0] * quiet)).line() is None


def test_steps_that_do_not_grow_with_their_tokens() -> None:
    tokens = np.array([0] * 30 + [500] * 30, np.int64)
    assert learned((tokens, np.where(tokens > 0, 0.019, 0.021))).line() is None


def test_a_law_that_explains_little_says_so() -> None:
    law = learned(steps([0, 30, 60, 90, 120] * 30, noise=0.8)).line()
    assert law is None or law.fit < 0.5


def test_the_law_follows_a_change() -> None:
    model = learned(steps([0] * 512), steps([1000] * 512))
    tokens, seconds = steps([0] * 512 + [1000] * 512, seed=3)
    add(model, tokens, 2 * seconds)
    law = model.line()
    assert law is not None
    assert law.token_ns / 1e9 == pytest.approx(2 * COST, rel=0.05)


def test_the_base_is_a_step_that_was_seen_also_where_contexts_are_long() -> None:
    """Tokens of late chunks cost several times as much: no straight line goes through such steps."""
    full = np.full(60, 2042)
    dearer = np.linspace(1, 4, 60)
    law = learned(steps([0] * 60), (full, BASE + COST * full * dearer)).line()
    assert law is not None
    assert law.base_ns / 1e9 == pytest.approx(BASE, rel=0.02)
    assert COST < law.token_ns / 1e9 < 4 * COST


@pytest.mark.parametrize(("late", "raised"), [(0.05, 0.0108), (0.10, 0.0031)])
def test_one_and_a_half_deviations_count_in_full_and_more_the_less(late: float, raised: float) -> None:
    """Sixteen steps within 2 % of the line, and four that took longer: by 5 % they raise the slope by their share of
    all, by 10 % they are outliers and raise it less."""
    tokens = np.full(20, 1000.0)
    errors = np.array([0.01 * (number % 5 - 2) for number in range(16)] + [late] * 4)
    slope, _ = huber_slope(tokens, (BASE + COST * tokens) * (1 + errors), BASE, DEFAULT.cost.outlier)
    assert slope / COST - 1 == pytest.approx(raised, abs=0.002)
