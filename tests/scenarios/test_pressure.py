"""The two pressures and the forecasts, from what the wire shows of a server at work."""

from __future__ import annotations

import functools

import pytest
from tests.scenarios.playbook import Scene, beat

from prefillwatch.analysis.settings import AnalysisSettings, Slo
from prefillwatch.contract.buckets import FORECAST_BOUNDS
from prefillwatch.export import table
from prefillwatch.observer.api import prediction, pressures_now

SIZES = (1800, 500, 1200, 2000, 900, 1500, 700, 1700, 1000, 1900, 600, 1400)
STREAMS = 4


def served(cost_ms: float, rounds: int = 2, settings: AnalysisSettings | None = None) -> Scene:
    """Prompts of many sizes, one every second, each read in the step that begins when it arrives; a token of it makes
    that step so many milliseconds longer."""
    scene = Scene(settings or AnalysisSettings())
    sizes = SIZES * rounds
    freezes = [(2000.0 + 1000 * number, 21 + cost_ms * tokens) for number, tokens in enumerate(sizes)]
    steps = beat(21, 4000 + 1000 * len(sizes), *freezes)
    scene.victims(STREAMS, steps)
    for number, tokens in enumerate(sizes):
        began = max(at for at in steps if at <= 2000 + 1000 * number)
        first = next(at for at in steps if at > began) + 2
        scene.prompt(began - 5, tokens).answers([first]).ends(first + 1)
    return scene.play(3000.0 + 1000 * len(sizes))


@functools.cache
def hurting() -> Scene:
    """Only to be looked at: 300 ms for a thousand tokens."""
    return served(cost_ms=0.3)


def ratio(scene: Scene, pressure: str) -> float:
    value = pressures_now(scene.observed.view())["m"][f"{pressure}_pressure_ratio"]
    assert isinstance(value, float)
    return value


def test_prompts_in_long_steps_are_interference_and_not_capacity() -> None:
    """Steps of up to 600 ms for four streams, and a server that is idle two thirds of the time."""
    scene = hurting()
    assert ratio(scene, "interference") == pytest.approx(0.0003 * 1800 / (0.2 - 0.021), rel=0.2)
    assert ratio(scene, "capacity") < 1
    values = scene.observed.values
    assert values(table.INTERFERENCE_PRESSURE)[("m",)] == pytest.approx(ratio(scene, "interference"), rel=0.01)
    assert values(table.CAPACITY_PRESSURE)[("m",)] == pytest.approx(ratio(scene, "capacity"), rel=0.01)


def test_a_promise_that_holds_is_below_one() -> None:
    scene = served(cost_ms=0.05, rounds=1)
    assert 0 < ratio(scene, "interference") < 1
    assert 0 < ratio(scene, "capacity") < 0.5


def test_a_slow_batch_is_capacity_and_not_interference() -> None:
    """40 streams at 140 ms per token each, where 100 are promised."""
    scene = Scene()
    steps = beat(140, 20_000)
    scene.victims(40, steps)
    for number in range(12):
        first = next(at for at in steps if at > 1000 * (number + 1))
        scene.prompt(first - 150, 20).answers([first + 1]).ends(first + 2)
    scene.play(20_000)
    assert ratio(scene, "capacity") == pytest.approx(1.4, rel=0.1)
    assert ratio(scene, "interference") < 0.2


def test_nothing_is_said_of_a_server_that_served_nobody() -> None:
    scene = Scene()
    scene.victims(2, beat(20, 4000))
    scene.play()
    assert pressures_now(scene.observed.view()) == {}
    assert scene.observed.values(table.CAPACITY_PRESSURE) == {}
    assert scene.observed.values(table.INTERFERENCE_PRESSURE) == {}


def test_a_server_without_work_can_be_scaled_in() -> None:
    scene = served(cost_ms=0.3, rounds=1)
    busy = ratio(scene, "capacity")
    scene.play()
    assert 0 <= ratio(scene, "capacity") < 0.6 * busy


def test_what_a_prompt_would_do() -> None:
    """A step of 21 ms, and 0.3 ms for each token that is not cached."""
    scene = hurting()
    for tokens, cached in ((1500, 0), (300, 0), (1500, 1000)):
        known = prediction(scene.observed.view(), tokens, cached)
        step_s = 0.021 + 0.0003 * (tokens - cached)
        assert known["known"]
        assert known["gap_seconds"] == pytest.approx(step_s, rel=0.1)
        assert known["first_token_seconds"] == pytest.approx(step_s, abs=0.04)
        assert known["first_token_low_seconds"] <= known["first_token_seconds"] <= known["first_token_high_seconds"]
        assert (known["streams"], known["queued_tokens"]) == (STREAMS, 0)
    assert prediction(scene.observed.view(), 3000, 0)["first_token_promise_seconds"] == 5.0


def test_a_prompt_that_waits_is_ahead_of_the_next() -> None:
    scene = served(cost_ms=0.3, rounds=1)
    alone = prediction(scene.observed.view(), 1500, 0)
    end = scene.observed.now_ms
    scene.prompt(end + 10, 2000)
    scene.play(end + 100)
    behind = prediction(scene.observed.view(), 1500, 0)
    assert behind["queued_tokens"] == pytest.approx(2000, rel=0.05)
    assert behind["first_token_seconds"] > alone["first_token_seconds"] + 0.0003 * 2000 / 2 - 0.05


def test_no_prediction_before_anything_was_learned() -> None:
    scene = Scene()
    scene.victims(2, beat(20, 4000))
    scene.play()
    known = prediction(scene.observed.view(), 1500, 0)
    assert not known["known"]
    assert known["reason"] == "too few engine steps with prompts were seen: 0"
    assert "gap_seconds" not in known


def test_each_prompt_is_forecast_and_held_against_what_happened() -> None:
    scene = hurting()
    family = next(each for each in scene.observed.snapshot() if each.spec is table.FORECAST)
    counts, _ = family.buckets[()]
    assert len(SIZES) <= sum(counts) < 2 * len(SIZES)
    right = [count for bound, count in zip(FORECAST_BOUNDS, counts, strict=False) if 0.8 < bound <= 1.25]
    assert sum(right) >= 0.9 * sum(counts)


def test_as_many_tokens_may_wait_as_are_read_in_the_promised_time() -> None:
    """Full steps of 2,000 tokens take 621 ms; two seconds and a half are promised, and one prompt is let in last."""
    scene = hurting()
    (advised,) = scene.observed.values(table.ADVISED_MAX_QUEUED_TOKENS).values()
    assert advised == pytest.approx(2.5 / 0.621 * 2000 - 1267, rel=0.1)
    strict = served(cost_ms=0.3, rounds=1, settings=AnalysisSettings(slo=Slo(ttft=0.3)))
    assert strict.observed.values(table.ADVISED_MAX_QUEUED_TOKENS) == {}
