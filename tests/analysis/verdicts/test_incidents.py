"""Chains of delays as incidents."""

from __future__ import annotations

import itertools

import pytest

from prefillwatch.analysis.delays import Incident, Share, Stall
from prefillwatch.analysis.requests.request import Request
from prefillwatch.analysis.tuning import DEFAULT
from prefillwatch.analysis.verdicts.incidents import IncidentBook
from prefillwatch.units import NS


def stall(start_s: float, end_s: float = 0.0, cause: str = "prefill", rid: int = 1, model: int = 0) -> Stall:
    request = Request(rid=rid, endpoint="completions", received_ns=1, model=model)
    return Stall(
        request=request,
        model=model,
        started_ns=round(start_s * NS),
        ended_ns=round(end_s * NS),
        excess_ns=(end_s - start_s) * NS if end_s else 0.0,
        cause=cause,
    )


def settle(book: IncidentBook, *stalls: Stall) -> None:
    for each in stalls:
        book.settle(each, each.ended_ns + 2 * NS)


def close(book: IncidentBook, at_s: float = 1000.0) -> list[Incident]:
    return book.close(round(at_s * NS))


def test_stalls_of_one_cause_in_a_row_are_one_incident() -> None:
    book = IncidentBook()
    settle(book, *(stall(10 + 3 * n, 12.9 + 3 * n, rid=n % 3) for n in range(60)))
    (incident,) = close(book)
    assert (incident.started_ns, incident.ended_ns) == (10 * NS, round(189.9 * NS))
    assert incident.final.delays == 60
    assert len(incident.final.victims) == 3


def test_another_cause_or_a_long_rest_begins_another() -> None:
    book = IncidentBook()
    settle(book, stall(10, 11), stall(11.5, 12.5, "preemption"), stall(20, 21))
    assert [(each.cause, each.started_ns // NS) for each in close(book)] == [
        ("prefill", 10),
        ("preemption", 11),
        ("prefill", 20),
    ]


@pytest.mark.parametrize(("rest_s", "incidents"), [(0.9, 1), (1.1, 2)])
def test_up_to_a_second_of_rest_it_goes_on(rest_s: float, incidents: int) -> None:
    book = IncidentBook()
    settle(book, stall(10, 11), stall(11 + rest_s, 13))
    assert len(close(book)) == incidents


def test_two_kinds_never_mix() -> None:
    book = IncidentBook()
    settle(book, stall(10, 11))
    waiting = stall(10, 11)
    waiting.kind = "wait"
    settle(book, waiting)
    assert len(close(book)) == 2


def test_an_open_one_lasts_until_its_stall_ends() -> None:
    book = IncidentBook()
    lasting = stall(10)
    book.hold(lasting, 12 * NS)
    assert close(book, 80) == []
    (incident,) = book.open
    assert incident.until_ns(80 * NS) == 80 * NS
    assert incident.tally(80 * NS).worst_ns == 70 * NS
    lasting.ended_ns = 87 * NS
    settle(book, lasting)
    assert close(book, 87.5) == []
    assert close(book) == [incident]


def test_a_changed_verdict_keeps_the_number() -> None:
    book = IncidentBook()
    stalls = [stall(10, rid=n, cause="unattributed") for n in range(3)]
    for each in stalls:
        book.hold(each, 11 * NS)
    number = book.open[0].number
    for each in stalls:
        each.cause = "prefill"
        book.hold(each, 12 * NS)
    (incident,) = book.open
    assert (incident.cause, incident.number, len(incident.live)) == ("prefill", number, 3)


def test_a_stall_that_was_none_leaves_no_trace() -> None:
    book = IncidentBook()
    mistake = stall(10)
    book.hold(mistake, 12 * NS)
    book.drop(mistake)
    assert book.open == []
    assert close(book) == []


def test_it_waits_for_a_provisional_stall_that_may_belong_to_it() -> None:
    book = IncidentBook()
    settle(book, stall(10, 11))
    late = stall(11, 12, "unattributed", rid=2)
    book.hold(late, 13 * NS)
    assert close(book, 20) == []
    late.cause = "prefill"
    settle(book, late)
    (incident,) = close(book)
    assert incident.final.delays == 2


def test_blame_adds_up_over_stalls() -> None:
    book = IncidentBook()
    long, short = (Request(rid=rid, endpoint="completions", received_ns=1, model=0) for rid in (7, 8))
    first, second = stall(10, 12), stall(12, 13)
    first.shares = (Share(long, 900, 0.9), Share(short, 100, 0.1))
    second.shares = (Share(long, 100, 1.0),)
    settle(book, first, second)
    (incident,) = close(book)
    assert {each.rid: round(ns / NS, 3) for each, ns in incident.final.blame_ns.items()} == {7: 2.8, 8: 0.2}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_of_stalls_that_are_alike_the_first_gives_the_evidence(order: tuple[int, ...]) -> None:
    """In whatever order they are judged, and whether they are final or not."""
    alike = [stall(10, 11, rid=3), stall(9.5, 10.5, rid=2), stall(9.5, 10.5, rid=1)]
    for each in alike:
        each.evidence = {"of": str(each.request.rid)}
    final, lasting = IncidentBook(), IncidentBook()
    settle(final, *(alike[index] for index in order))
    (incident,) = close(final)
    assert incident.final.evidence == {"of": "1"}
    for index in order:
        lasting.hold(alike[index], 12 * NS)
    (incident,) = lasting.open
    assert incident.tally(12 * NS).evidence == {"of": "1"}


def test_the_model_is_that_of_most_victims() -> None:
    book = IncidentBook()
    settle(book, stall(10, 11, rid=1, model=1), stall(10, 11, rid=2, model=2), stall(10, 11, rid=3, model=2))
    assert close(book)[0].model == 2


def test_links_may_be_so_far_apart_and_no_further() -> None:
    near, far = IncidentBook(), IncidentBook()
    settle(near, stall(10, 11), stall(11 + DEFAULT.incidents.chain_ns / NS, 13))
    settle(far, stall(10, 11), stall(11.01 + DEFAULT.incidents.chain_ns / NS, 13))
    assert (len(close(near)), len(close(far))) == (1, 2)


def test_whoever_was_a_victim_was_decoding_too_although_never_all_at_once() -> None:
    book = IncidentBook()
    delays = [stall(10 + n / 4, 10.2 + n / 4, rid=n) for n in range(20)]
    waiting = stall(10, 11, rid=99)
    waiting.kind = "wait"
    for each in (*delays, waiting):
        each.decoding = 8
    settle(book, *delays, waiting)
    freeze, wait = sorted(close(book), key=lambda each: each.kind)
    assert (len(freeze.final.victims), freeze.final.decoding) == (20, 20)
    assert (len(wait.final.victims), wait.final.decoding) == (1, 8)


def test_it_keeps_its_first_delays_to_be_told_by() -> None:
    book = IncidentBook()
    settle(book, *(stall(10 + n, 10.9 + n, rid=n) for n in range(600)))
    (incident,) = close(book)
    assert incident.final.delays == 600
    assert [each.request.rid for each in incident.kept] == list(range(512))
