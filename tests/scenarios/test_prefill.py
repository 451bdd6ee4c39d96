"""Stalls that a prompt is to blame for, as operators met them, and those that only look like it."""

from __future__ import annotations

import pytest
from tests.scenarios.playbook import Scene, beat

from prefillwatch.export import table


def test_one_long_prompt_freezes_everybody_once() -> None:
    scene = Scene()
    scene.victims(6, beat(21, 12_000, (5000, 830)))
    scene.prompt(4990, 6000, "lump").answers(beat(21, 6200, start=5830)).ends(6210)
    scene.play()
    incident = scene.incident()
    assert incident["cause"] == "prefill"
    assert (incident["victims"], incident["decoding"]) == (6, 6)
    assert incident["worst_gap_seconds"] == pytest.approx(0.83, abs=0.03)
    assert incident["stall_seconds"] == pytest.approx(6 * 0.81, abs=0.2)
    assert [culprit["request_id"] for culprit in incident["culprits"]] == ["lump"]
    assert incident["culprits"][0]["share"] == 1.0
    assert (incident["culprit_count"], incident["culprit_tokens"]) == (1, 6000)
    assert scene.stalls() == {"prefill": 6}
    assert scene.observed.values(table.PREFILL_BLAME)[("m", "2k-8k")] == pytest.approx(6 * 0.81, abs=0.2)
    assert scene.observed.values(table.FREEZES)[("m", "prefill")] == 1


def test_minutes_of_silence_are_one_stall_that_shows_at_once() -> None:
    scene = Scene()
    scene.victims(1, beat(17, 90_000, (6000, 77_000)))
    scene.prompt(5990, 200_019, "attacker").answers(beat(17, 84_000, start=83_010)).ends(84_100)
    scene.play(until=11_000)
    seen = scene.incident()
    assert (seen["cause"], seen["ongoing"], seen["victims"]) == ("prefill", True, 1)
    assert seen["duration_seconds"] == pytest.approx(5, abs=0.2)
    assert scene.stalls() == {}
    assert scene.observed.values(table.FROZEN_STREAMS)[("m",)] == 1
    scene.play()
    incident = scene.incident()
    assert incident["id"] == seen["id"]
    assert (incident["cause"], incident["ongoing"]) == ("prefill", False)
    assert incident["duration_seconds"] == pytest.approx(77, abs=0.1)
    assert scene.stalls() == {"prefill": 1}
