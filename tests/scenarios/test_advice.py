"""The law of the steps and the advice, from what the wire shows of a server at work."""

from __future__ import annotations

import pytest
from tests.scenarios.playbook import Scene, beat

from prefillwatch.export import table
from prefillwatch.observer.api import advice_now

SIZES = (1800, 500, 1200, 2000, 900, 1500, 700, 1700, 1000, 1900, 600, 1400)


def served(cost_ms: float) -> Scene:
    """Prompts of many sizes, one every second, each read in one step that takes so many milliseconds per token more."""
    scene = Scene()
    freezes = [(2000.0 + 1000 * number, 21 + cost_ms * tokens) for number, tokens in enumerate(SIZES)]
    steps = beat(21, 16_000, *freezes)
    scene.victims(4, steps)
    for number, tokens in enumerate(SIZES):
        since = 2000 + 1000 * number
        first = next(at for at in steps if at > since + 21) + 2
        scene.prompt(since - 60, tokens).answers([first]).ends(first + 1)
    return scene.play()


def test_a_server_whose_prompts_hurt() -> None:
    scene = served(cost_ms=0.3)
    assert scene.observed.values(table.PREFILL_COST)[("m",)] == pytest.approx(0.0003, rel=0.1)
    assert scene.observed.values(table.BASELINE_STEP)[("m",)] == pytest.approx(0.021, rel=0.1)
    assert scene.observed.values(table.PREFILL_COST_FIT)[("m",)] > 0.9
    advised = scene.observed.values(table.ADVISED_MAX_BATCHED_TOKENS)[("m",)]
    assert advised == pytest.approx((0.2 - 0.021) / 0.0003, rel=0.15)
    advice = advice_now(scene.observed.view())["m"]
    assert f"max_num_batched_tokens={round(advised)}" in advice["words"]
    assert advice["ttft_then_seconds"] > advice["ttft_now_seconds"]
    assert advice["p99_without_prefill_seconds"] == pytest.approx(0.021, rel=0.05)


def test_a_model_so_small_that_prompts_cost_nothing() -> None:
    scene = served(cost_ms=0.002)
    advice = advice_now(scene.observed.view())["m"]
    assert advice["advised_max_batched_tokens"] is None
    assert ("m",) not in scene.observed.values(table.ADVISED_MAX_BATCHED_TOKENS)
    assert "no advice" in advice["words"]


def test_no_advice_before_anything_was_learned() -> None:
    scene = Scene()
    scene.victims(2, beat(20, 4000))
    scene.play()
    assert "no advice yet" in advice_now(scene.observed.view())["m"]["words"]
    assert scene.observed.values(table.PREFILL_COST) == {}
