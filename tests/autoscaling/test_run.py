"""A request's misses are counted by what the engine did, and a purchase by what it changed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.autoscaling.fleet import Served
from tests.autoscaling.laws import Fixed, LatencyOverPromise, Law, QueueLength
from tests.autoscaling.run import COLD_START, Look, Outcome, alone, in_vain, play, why_missed
from tests.autoscaling.traffic import Scene, made
from tests.simulation.engine import Job

#: Twice what two engines can do, from its second minute on.
RISING = Scene("rising", "capacity", "made", lambda: made(1, 300.0, lambda at: 0.5 if at < 60 else 2.8), length=300.0)


def served(
    sent: float = 0.0, first: float = 1000.0, each: float = 60.0, clear: float = 60.0, prompt: int = 500
) -> Served:
    """An answer of eleven tokens."""
    job = Job("one", sent, prompt, 11)
    return Served(job, sent, sent + 10, sent + first, sent + first + 10 * each, 11, 10 * clear)


def test_why_a_request_missed() -> None:
    assert why_missed(served()) == ""
    assert why_missed(served(first=2600.0)) == "capacity"
    assert why_missed(served(first=4500.0, prompt=30_000)) == "own length"
    assert why_missed(served(each=110.0)) == "interference"
    assert why_missed(served(each=110.0, clear=101.0)) == "capacity"
    assert why_missed(replace(served(), tokens=5)) == "capacity"


def test_a_prompt_alone_takes_its_steps_and_more_for_what_is_deep_in_it() -> None:
    assert alone(Job("short", 0.0, 100, 1)) == pytest.approx(40 + 10, abs=0.1)
    assert alone(Job("long", 0.0, 20_000, 1)) == pytest.approx(3 * 40 + 2000 * 1.25)


AT = 200_000.0
READY = AT + COLD_START * 1000.0


def moved(each: Served, by: float) -> Served:
    assert each.begun is not None
    assert each.first is not None
    assert each.last is not None
    return replace(each, sent=by, begun=each.begun + by, first=each.first + by, last=each.last + by)


@pytest.mark.parametrize(
    ("before", "after", "in_flight", "unneeded"),
    [
        (served(each=110.0), served(each=110.0), 12, 2),
        (served(each=110.0), served(each=110.0), 14, 1),
        (served(each=110.0), served(each=110.0), 24, 0),
        (served(each=110.0), served(), 12, 0),
        (served(), served(), 12, 2),
    ],
    ids=["room for all", "room for one less", "no room", "it helped", "nothing was wrong"],
)
def test_a_purchase_is_in_vain_if_there_was_room_and_nobody_was_better_off(
    before: Served, after: Served, in_flight: int, unneeded: int
) -> None:
    """From two to four."""
    requests = [moved(before, AT - 1000.0), moved(after, READY + 1000.0)]
    looks = [Look(at, 4, 4 if at >= 300 else 2, in_flight if at >= 300 else 10) for at in (200.0, 300.0, 450.0)]
    assert in_vain(requests, looks, AT, 2) == unneeded


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    laws: dict[str, Law] = {"two": Fixed(2), "eight": Fixed(8), "queue": QueueLength(), "latency": LatencyOverPromise()}
    return {name: play(RISING, law) for name, law in laws.items()}


def test_the_same_seed_is_the_same_run(outcomes: dict[str, Outcome]) -> None:
    assert play(RISING, LatencyOverPromise()) == outcomes["latency"]


def test_who_buys_when_it_is_needed_keeps_more_promises_than_who_does_not(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["two"].attainment < 0.6
    assert outcomes["eight"].attainment > 0.99
    for law in ("queue", "latency"):
        assert outcomes[law].attainment > outcomes["two"].attainment
        assert outcomes[law].bought > 0
        assert outcomes[law].in_vain < outcomes[law].bought
    assert outcomes["two"].replicas == pytest.approx(2)
    assert 2 < outcomes["latency"].replicas < 8


def test_every_request_is_in_a_moment(outcomes: dict[str, Outcome]) -> None:
    for outcome in outcomes.values():
        assert sum(each.offered for each in outcome.moments) == outcome.requests
        assert sum(each.kept for each in outcome.moments) == outcome.kept
        assert outcome.requests == outcome.kept + sum(outcome.missed.values())
