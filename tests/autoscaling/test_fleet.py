"""Replicas come late and go when they are done, the router looks where the fewest are, and our cores see it all."""

from __future__ import annotations

import pytest
from tests.autoscaling.fleet import Fleet
from tests.simulation.engine import Job, Scheduling, Speed

from prefillwatch.export import table

PACE = Speed(base=20.0, per_sequence=0.0, per_prompt_token=0.1, noise=0.0)


def fleet(replicas: int = 2, *, watched: bool = False) -> Fleet:
    return Fleet(Scheduling(seats=8), PACE, replicas, gap=200.0, cold_start=100_000.0, watched=watched)


def chat(name: str, at: float, answer: int = 50) -> Job:
    return Job(name, at, 100, answer)


def in_flight(many: Fleet) -> list[int]:
    return [len(each.in_flight) for each in many.replicas]


def test_requests_go_where_the_fewest_are() -> None:
    many = fleet(3)
    for number in range(7):
        many.send(chat(f"chat-{number}", 10.0 * number))
    assert in_flight(many) == [3, 2, 2]


def test_a_replica_is_asked_nothing_before_it_is_ready_and_is_paid_for_from_the_start() -> None:
    many = fleet(1)
    many.go_on(50_000.0)
    many.scale(2)
    many.send(chat("early", 149_000.0, 500))
    assert (len(many.provisioned), in_flight(many)) == (2, [1, 0])
    many.send(chat("late", 150_000.0))
    assert in_flight(many) == [1, 1]
    assert many.paid_for(150_000.0) == 150_000.0 + 100_000.0


def test_one_that_has_to_go_finishes_what_it_has_and_is_paid_for_until_then() -> None:
    many = fleet(2)
    many.send(chat("first", 0.0, 10))
    many.send(chat("second", 1.0, 100))
    many.scale(1)
    many.send(chat("third", 2.0, 10))
    assert in_flight(many) == [2, 1]
    many.go_on(1000.0)
    assert many.replicas[1].gone is None
    many.go_on(10_000.0)
    assert [each.ended for each in many.served] == [True] * 3
    assert many.replicas[1].gone == 10_000.0
    assert many.paid_for(20_000.0) == 20_000.0 + 10_000.0


def test_one_that_never_was_ready_goes_first_and_at_once() -> None:
    many = fleet(2)
    many.scale(3)
    many.go_on(1000.0)
    many.scale(2)
    many.go_on(2000.0)
    assert [each.gone for each in many.replicas] == [None, None, 2000.0]


def test_what_a_request_got_is_what_its_engine_did() -> None:
    many = fleet(1)
    many.send(Job("one", 1000.0, 1000, 11))
    many.go_on(60_000.0)
    (one,) = many.served
    assert one.begun == 1002.0
    assert one.first == 1002.0 + 20.0 + 0.1 * 1000 * (1 + 500 / PACE.attention_tokens)
    assert one.last == pytest.approx(one.first + 10 * 20.0)
    assert one.clear == pytest.approx(10 * 20.0)
    assert many.answers == [(one.last, pytest.approx(20.0))]


def test_a_gap_is_late_where_another_prompt_made_it_so() -> None:
    many = fleet(1)
    many.send(Job("reads", 0.0, 100, 100))
    many.send(Job("long", 500.0, 6000, 5))
    many.go_on(60_000.0)
    assert [each.late for each in many.served] == [3, 0]


def test_the_core_beside_an_engine_counts_what_that_engine_did() -> None:
    many = fleet(2, watched=True)
    for number in range(40):
        many.send(chat(f"chat-{number}", 500.0 * number))
    many.go_on(60_000.0)
    requests, tokens = 0, 0.0
    for each in many.replicas:
        assert each.beside is not None
        observed = each.beside.observed
        requests += sum(observed.counts(table.TIME_TO_FIRST_TOKEN).values())
        tokens += sum(observed.values(table.GENERATED_TOKENS).values())
        assert observed.values(table.UPSTREAM_REQUESTS) == {("0", "running"): 0, ("0", "waiting"): 0}
    assert (requests, tokens) == (40, sum(each.tokens for each in many.served)) == (40, 2000)
