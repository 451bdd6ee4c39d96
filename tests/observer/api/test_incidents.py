"""Incidents as the admin API shows them."""

from __future__ import annotations

import json
import logging
import time

import msgspec
import pytest

from prefillwatch.analysis.delays import Share, Stall
from prefillwatch.analysis.requests.models import ModelNames
from prefillwatch.analysis.requests.request import Request
from prefillwatch.analysis.verdicts.incidents import IncidentBook
from prefillwatch.core.view import IncidentNow, incident_now
from prefillwatch.observer.api import MOST_CULPRITS, MOST_KEPT, IncidentHistory
from prefillwatch.units import NS

FIELDS: dict[str, type] = {
    "id": str,
    "kind": str,
    "cause": str,
    "model": str,
    "started_at": float,
    "duration_seconds": float,
    "ongoing": bool,
    "victims": int,
    "decoding": int,
    "stall_seconds": float,
    "worst_gap_seconds": float,
    "baseline_gap_seconds": float,
    "reason": type(None),
    "culprits": list,
    "culprit_count": int,
    "culprit_tokens": int,
    "evidence": dict,
}


def request(rid: int, tokens: int = 6000) -> Request:
    return Request(
        rid=rid, endpoint="completions", received_ns=1, model=0, request_id=f"request-{rid}", prompt_tokens=tokens
    )


def incident(ago_s: float = 10.0, culprits: int = 1, *, over: bool = True, **changed: int) -> IncidentNow:
    book, now_ns = IncidentBook(), time.monotonic_ns()
    started_ns = now_ns - round(ago_s * NS)
    stall = Stall(
        request=request(1), model=0, started_ns=started_ns, baseline_ns=0.021 * NS, cause="prefill", decoding=6
    )
    stall.excess_ns = 0.81 * NS
    stall.shares = tuple(Share(request(100 + n), 6000, 1 / culprits) for n in range(culprits))
    if over:
        stall.ended_ns = started_ns + round(0.83 * NS)
        book.settle(stall, now_ns)
    else:
        book.hold(stall, now_ns)
    now = incident_now(book.open[0], ModelNames().labels, stall.ended_ns or now_ns, ongoing=not over)
    return msgspec.structs.replace(now, **changed)


def test_the_document_has_what_was_agreed_and_nothing_else() -> None:
    history = IncidentHistory()
    history.add(incident())
    (document,) = history.newest([], 10)
    assert {name: type(value) for name, value in document.items()} == FIELDS
    assert document["started_at"] == pytest.approx(time.time() - 10, abs=2)
    assert document["duration_seconds"] == pytest.approx(0.83)
    assert document["culprits"] == [
        {
            "request_id": "request-100",
            "prompt_tokens": 6000,
            "uncached_prompt_tokens": 6000,
            "prompt_tokens_source": "estimate",
            "share": 1.0,
        }
    ]
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_newest_first_and_ongoing_among_them() -> None:
    history = IncidentHistory()
    for ago_s in (50, 30, 20):
        history.add(incident(ago_s))
    found = history.newest([incident(25, over=False)], 3)
    assert [each["ongoing"] for each in found] == [False, True, False]
    assert found[1]["duration_seconds"] == pytest.approx(25, abs=2)
    starts = [each["started_at"] for each in found]
    assert starts == sorted(starts, reverse=True)


def test_history_is_bounded() -> None:
    history = IncidentHistory()
    one = incident()
    for _ in range(MOST_KEPT + 10):
        history.add(one)
    assert len(history.newest([], 10 * MOST_KEPT)) == MOST_KEPT


def test_many_culprits_are_counted_and_the_worst_are_named() -> None:
    history = IncidentHistory()
    history.add(incident(culprits=40))
    (document,) = history.newest([], 1)
    assert (document["culprit_count"], document["culprit_tokens"]) == (40, 240_000)
    assert len(document["culprits"]) == MOST_CULPRITS


def test_one_log_line_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        IncidentHistory().add(incident())
    (record,) = caplog.records
    logged = json.loads(record.getMessage().removeprefix("incident "))
    assert logged.keys() == FIELDS.keys()


def test_ids_of_two_observers_differ() -> None:
    documents = []
    for prefix in ("a", "b"):
        history = IncidentHistory(prefix)
        history.add(incident())
        documents += history.newest([], 1)
    assert documents[0]["id"] != documents[1]["id"]


def test_the_order_is_that_of_the_monotonic_clock_whatever_the_one_on_the_wall_does() -> None:
    """It may be stepped back, and two looks at it are never the same moment."""
    offsets = iter((7200.0, 0.0, 0.0, 1e-6))
    history = IncidentHistory(wall_offset=lambda: next(offsets))
    began_ns = incident(5).started_ns
    history.add(incident(20, number=0))
    history.add(incident(10, number=1))
    for number in (2, 3):
        history.add(incident(number=number, started_ns=began_ns))
    assert [each["id"].rpartition("-")[2] for each in history.newest([], 9)] == [
        "2",
        "3",
        "1",
        "0",
    ]
