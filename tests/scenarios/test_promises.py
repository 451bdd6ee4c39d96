"""Deadlines and service levels, for those who stay and those who give up."""

from __future__ import annotations

import pytest
from tests.scenarios.playbook import Scene, beat

from prefillwatch.export import table

WITHIN = table.REQUESTS_WITHIN_SLO


def within(scene: Scene) -> float:
    return scene.observed.values(WITHIN).get(("m",), 0.0)


def test_an_answer_in_time_keeps_its_promises() -> None:
    scene = Scene()
    scene.victims(3, beat(30, 5000))
    scene.play()
    assert within(scene) == 3


def test_a_client_that_leaves_content_kept_its_promises_so_far() -> None:
    scene = Scene()
    (victim,) = scene.victims(1, beat(30, 5000), ends=False)
    victim.client_leaves(5010)
    scene.play()
    assert within(scene) == 1


def test_a_client_that_gives_up_in_a_freeze_is_a_miss_and_its_deadlines_count() -> None:
    scene = Scene()
    (victim,) = scene.victims(1, beat(30, 3000), ends=False)
    victim.client_leaves(60_000)
    scene.play()
    assert within(scene) == 0
    missed = scene.observed.values(table.TOKEN_DEADLINE_MISSES)[("m",)]
    # 98 tokens at 30 ms instead of 200 ms each had built a slack of some 16 s.
    assert missed == pytest.approx((57_000 - 16_600) / 200, rel=0.05)
    due = scene.observed.values(table.TOKEN_DEADLINES)[("m",)]
    assert missed < due


def test_a_client_that_gives_up_before_its_first_token_is_a_miss() -> None:
    scene = Scene()
    scene.prompt(100, 100).client_leaves(9000)
    scene.play()
    assert within(scene) == 0
    assert scene.observed.values(table.REQUESTS)[("m", "chat_completions", "client_closed")] == 1


def test_a_late_first_token_is_a_miss_however_smooth_the_rest() -> None:
    scene = Scene()
    scene.prompt(100, 100).answers(beat(20, 8000, start=3000)).ends(8001)
    scene.play()
    assert within(scene) == 0
