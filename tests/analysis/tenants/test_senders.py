"""Books by tenant: bounded in a flood, right when places change hands."""

from __future__ import annotations

import sys

import numpy as np

from prefillwatch.analysis.delays import Share, Stall
from prefillwatch.analysis.requests import LOST, Request
from prefillwatch.analysis.tenants import Senders
from prefillwatch.analysis.tenants.places import WATCHED_PER_PLACE
from prefillwatch.analysis.tokens import Gaps
from prefillwatch.units import MS, NS

WINDOWS_S = (10, 60)
MINUTE_NS = 60 * NS


def request(tenant: str, now_ns: int = NS, tokens: int = 10) -> Request:
    return Request(0, "chat", now_ns, 0, tenant=tenant, sent_ns=now_ns, prompt_tokens=tokens)


def serve(senders: Senders, tenant: str, now_ns: int, tokens: int = 10) -> None:
    given = request(tenant, now_ns, tokens)
    senders.received(given)
    senders.ended(given, now_ns, "ok")


def requests_of(senders: Senders) -> dict[str, int]:
    names = {number: name for name, number in senders.places.numbers.items()}
    return {names.get(number, "other"): book.totals.requests for number, book in senders.tenants.books.items()}


def test_a_flood_of_ten_thousand_is_counted_to_the_last_and_kept_by_few() -> None:
    senders = Senders(WINDOWS_S, 20, priorities=True)
    sizes = []
    for number in range(10_000):
        now_ns = NS + number * 100 * MS
        serve(senders, f"tenant-{number}", now_ns)
        senders.advance(now_ns, ())
        sizes.append(len(senders.places))
    counted = requests_of(senders)
    assert len(counted) == 21
    assert sum(counted.values()) == 10_000
    assert max(sizes) <= 20 * WATCHED_PER_PLACE
    assert len(senders._remembered) <= 4 * 20
    assert sys.getsizeof(senders.tenants.books) < 10_000


def test_who_keeps_coming_in_a_flood_has_a_place_and_its_figures() -> None:
    senders = Senders(WINDOWS_S, 3, priorities=False)
    for number in range(6_000):
        now_ns = NS + number * 100 * MS
        serve(senders, f"stranger-{number}", now_ns)
        if number % 20 == 0:
            serve(senders, "large", now_ns, tokens=1000)
        senders.advance(now_ns, ())
    assert "large" in senders.places.numbers
    assert 250 <= requests_of(senders)["large"] <= 300, "but for what came before it had a place"


def stalled(victim: Request, *shares: tuple[Request, float]) -> Stall:
    parts = tuple(Share(culprit, 1, part) for culprit, part in shares)
    return Stall(request=victim, model=0, started_ns=NS, ended_ns=2 * NS, excess_ns=1.0 * NS, shares=parts)


def test_a_stall_of_several_culprits_is_shared() -> None:
    senders = Senders(WINDOWS_S, 20, priorities=False)
    a, b = request("a"), request("b")
    for each in (a, b):
        senders.received(each)
    senders.stall(stalled(a, (b, 0.75), (a, 0.25)))
    senders.stall(stalled(a))
    of_a, of_b = senders.tenants.of(a).totals, senders.tenants.of(b).totals
    assert (of_a.caused, of_a.suffered, of_a.itself, of_a.nobody) == (0.0, 0.75, 0.25, 1.0)
    assert (of_b.caused, of_b.suffered, of_b.itself, of_b.nobody) == (0.75, 0.0, 0.0, 0.0)
    assert senders.tenants.matrix.pairs(2 * NS) == {("b", "a"): 0.75, ("a", "a"): 0.25}


def gaps(slot: int, end_ns: int, seconds: float) -> Gaps:
    ends = np.array([end_ns])
    return Gaps(
        np.array([slot]), np.zeros(1, np.int64), ends - round(seconds * NS), ends, np.ones(1, np.int64), ends > 0
    )


def test_gaps_of_a_stream_go_with_the_place_of_its_tenant() -> None:
    senders = Senders((3600,), 1, priorities=False)
    small, large = request("small", NS), request("large", NS)
    for slot, each in enumerate((small, large)):
        senders.received(each)
        each.slots[0] = 100 + slot
        senders.stream(100 + slot, each)
    senders.gaps(gaps(100, 2 * NS, 0.1))
    senders.gaps(gaps(101, 2 * NS, 0.2))
    assert senders.tenants.books[1].gaps.maximum(3600) == 0.1
    assert senders.tenants.books[0].gaps.maximum(3600) == 0.2
    serve(senders, "large", 3 * NS, tokens=1000)
    senders.advance(2 * MINUTE_NS, (small, large))
    assert senders.places.numbers == {"large": 1}
    senders.gaps(gaps(101, 3 * MINUTE_NS, 0.4))
    senders.gaps(gaps(100, 3 * MINUTE_NS, 0.3))
    assert senders.tenants.books[1].gaps.maximum(3600) == 0.4, "a place that changed hands begins with empty windows"
    assert senders.tenants.books[0].gaps.maximum(3600) == 0.3


def test_what_upstream_never_got_and_what_was_lost_is_no_request() -> None:
    senders = Senders(WINDOWS_S, 20, priorities=True)
    for outcome in (LOST, "rejected"):
        senders.ended(request("a"), NS, outcome)
    never_sent = request("a")
    never_sent.sent_ns = 0
    senders.ended(never_sent, NS, "client_closed")
    assert set(requests_of(senders).values()) == {0}


def test_only_requests_for_text_can_keep_a_promise_and_count() -> None:
    senders = Senders(WINDOWS_S, 20, priorities=False)
    given = request("a", tokens=50)
    given.endpoint = "embeddings"
    senders.received(given)
    senders.ended(given, NS, "ok")
    totals = senders.tenants.of(given).totals
    assert (totals.requests, totals.prompt_tokens) == (0, 50)


def test_who_does_not_say_who_it_is_is_none() -> None:
    senders = Senders(WINDOWS_S, 20, priorities=False)
    serve(senders, "", NS)
    assert requests_of(senders) == {"other": 0, "none": 1}
