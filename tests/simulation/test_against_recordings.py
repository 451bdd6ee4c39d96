"""The simulated vLLM against a real one: the same requests at the same times give the same gaps and reads, within
bounds.

The recordings are of vLLM 0.32 on a CPU, whose steps scatter more than the simulation's. The bounds are wide enough for
that, and narrow enough for who is in which step: a prompt that is read in another number of steps, streams that wait
for it or do not, and first tokens that come a step earlier show in them. Not held against it are recordings in which
other programs fought for the cores, those with faults, and two that are too few events to have a distribution: one with
preemptions, and one in which twelve prompts fill four steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.simulation.engine import Scheduling
from tests.simulation.reality import Reads, fitted, real, recorded, scheduling_of, simulated

NAMES = ("single-2500", "mixed", "twelve-at-once", "short-300", "shared-prefix", "single-unchunked")


@pytest.fixture(scope="module", params=NAMES)
def both(request: pytest.FixtureRequest) -> tuple[Reads, Reads]:
    lines = recorded(request.param)
    return real(lines), simulated(lines)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_gaps_are_spread_alike(both: tuple[Reads, Reads], share: float) -> None:
    really, here = both
    assert here.quantile(share) == pytest.approx(really.quantile(share), rel=0.35)


def test_long_gaps_last_as_long_together(both: tuple[Reads, Reads]) -> None:
    really, here = both
    assert sum(here.long) == pytest.approx(sum(really.long), rel=0.35)


def test_prompts_are_read_in_as_many_steps_and_fill_as_many(both: tuple[Reads, Reads]) -> None:
    really, here = both
    assert here.prompt_steps == pytest.approx(really.prompt_steps, abs=2)
    assert here.full == pytest.approx(really.full, abs=0.15)


def test_first_tokens_come_as_late(both: tuple[Reads, Reads]) -> None:
    really, here = both
    assert here.first_token == pytest.approx(really.first_token, rel=0.35)


def test_hardly_a_read_brings_more_than_one_event(both: tuple[Reads, Reads]) -> None:
    really, here = both
    assert really.fat < 0.03
    assert here.fat < 0.03


def test_another_schedule_is_noticed() -> None:
    lines = recorded("mixed")
    really = real(lines)
    for other in (Scheduling(budget=512), Scheduling(chunked=False, budget=16_384), Scheduling(prefill_first=True)):
        here = simulated(lines, replace(scheduling_of(lines), **_changed(other)))
        alike = (
            len(here.long) == pytest.approx(len(really.long), rel=0.25),
            here.prompt_steps == pytest.approx(really.prompt_steps, abs=2),
            here.first_token == pytest.approx(really.first_token, rel=0.35),
        )
        assert not all(alike), other


def _changed(other: Scheduling) -> dict[str, Any]:
    return {name: value for name, value in vars(other).items() if value != getattr(Scheduling(), name)}


def test_the_fit_says_what_a_prompt_token_costs() -> None:
    speed = fitted(recorded("single-2500"))
    assert 5 < speed.base < 12
    assert 0.1 < speed.per_prompt_token < 0.5
