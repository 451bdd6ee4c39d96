"""When a verdict is final, and what comes too early or too late to count for it."""

from __future__ import annotations

import pytest
from tests.scenarios.playbook import Scene, beat


def frozen(scene: Scene, since: float = 8000, took: float = 900) -> float:
    """Four streams at 20 ms per token, and a prompt that freezes them; when that ends."""
    steps = beat(20, since + 4000, (since, took))
    scene.victims(4, steps)
    ended = next(at for at in steps if at > since + took / 2)
    scene.prompt(since - 30, 6000).answers([ended + 2]).ends(ended + 3)
    return ended


def test_what_speaks_about_a_stall_has_come_after_a_second_and_a_half() -> None:
    scene = Scene()
    ended = frozen(scene)
    scene.play(until=ended + 1400)
    assert scene.stalls() == {}
    assert scene.incident()["cause"] == "prefill"
    scene.play(until=ended + 1700)
    assert scene.stalls() == {"prefill": 4}


def test_a_verdict_waits_half_a_minute_for_steps_that_stay_open() -> None:
    """The engine goes on with long steps, and the prompt that waits may have been in any of them."""
    scene = Scene()
    steps = beat(20, 45_000, *[(4000 + 250.0 * number, 250.0) for number in range(160)])
    scene.victims(2, steps)
    scene.prompt(3990, 90_000)
    first = next(at for at in steps if at > 4100)
    scene.play(until=first + 29_500)
    assert scene.stalls() == {}
    scene.play(until=first + 31_000)
    assert scene.stalls()


@pytest.mark.parametrize(("age_ms", "known"), [(4500, True), (5500, False)])
def test_a_page_from_long_before_says_nothing_of_a_gap(age_ms: int, known: bool) -> None:
    scene = Scene()
    ended = frozen(scene)
    scene.gauges(ended - 900 - age_ms, running=4, waiting=0, kv_usage=0.3, preemptions=0.0)
    scene.gauges(ended + 500, running=4, waiting=0, kv_usage=0.3, preemptions=0.0)
    scene.play()
    assert scene.incident()["evidence"]["engine_gauges_known"] is known


@pytest.mark.parametrize(("late_ms", "cause"), [(48, "frontend"), (58, "unattributed")])
def test_what_a_server_held_back_for_a_moment_comes_within_fifty_milliseconds(late_ms: int, cause: str) -> None:
    scene = Scene()
    before = beat(10, 4000)
    ended = before[-1] + 130
    for number in range(4):
        stream = scene.prompt(5 + number, 16).answers([at + 0.1 * number for at in before])
        stream.read(ended + 0.1 * number)
        stream.read(ended + late_ms + 0.1 * number, 16)
        stream.answers(beat(10, 6000, start=ended + late_ms + 10)).ends(6100)
    scene.play()
    assert scene.incident()["cause"] == cause


@pytest.mark.parametrize(("chars", "cause"), [(48, "frontend"), (47, "unattributed")])
def test_an_event_with_far_more_text_than_a_token_has_may_hold_what_was_held_back(chars: int, cause: str) -> None:
    scene = Scene()
    before = beat(20, 4000)
    ended = before[-1] + 250
    for number in range(4):
        stream = scene.prompt(5 + number, 16).answers([at + 0.1 * number for at in before])
        stream.read(ended + 0.1 * number)
        stream.read(ended + 20 + 0.1 * number, text="x" * chars)
        stream.answers(beat(20, 6000, start=ended + 40)).ends(6100)
    scene.play()
    assert scene.incident()["cause"] == cause
