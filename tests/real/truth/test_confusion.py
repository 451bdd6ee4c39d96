"""The judge judged: made-up incidents and true stalls, and the matrix that must come of them. Needs no vLLM."""

from __future__ import annotations

from typing import Any

import pytest
from tests.real.sidecar import Metrics
from tests.real.truth.confusion import NOTHING, UNSEEN, confusion
from tests.real.truth.said import STALL_SECONDS, Incident, Said
from tests.real.truth.true_causes import STARVED, TrueStall

from prefillwatch.units import MS


def incident(start_ms: int, end_ms: int, cause: str, seconds: float, **shares: float) -> Incident:
    culprits = [{"request_id": name, "share": share} for name, share in shares.items()]
    document: dict[str, Any] = {"culprits": culprits, "culprit_count": len(culprits)}
    return Incident(start_ms * MS, end_ms * MS, cause, "freeze", seconds, document)


def stall(start_ms: int, end_ms: int, cause: str, **tokens: int) -> TrueStall:
    return TrueStall("v0", start_ms * MS, end_ms * MS, (end_ms - start_ms) * MS, cause, tokens)


def said(*incidents: Incident, **counted: float) -> Said:
    """`counted` are the metrics, where they differ from the incidents."""
    seconds: dict[str, float] = {}
    for each in incidents:
        seconds[each.cause] = seconds.get(each.cause, 0.0) + each.seconds
    samples = {(STALL_SECONDS, frozenset({("cause", cause)})): value for cause, value in (seconds | counted).items()}
    return Said(Metrics(samples), [], list(incidents))


def test_a_right_verdict_is_on_the_diagonal() -> None:
    found = confusion(said(incident(0, 1000, "prefill", 0.9, p0=1.0)), [stall(0, 1000, "prefill", p0=2000)])
    assert dict(found.seconds) == {("prefill", "prefill"): pytest.approx(0.9)}
    assert (found.precision, found.recall, found.membership, found.sharing) == (1, 1, 1, 1)


def test_a_pause_named_prefill_costs_precision_and_not_recall() -> None:
    incidents = said(incident(0, 1000, "prefill", 1.0, p0=1.0), incident(5000, 6000, "prefill", 3.0, p1=1.0))
    found = confusion(incidents, [stall(0, 1000, "prefill", p0=2000), stall(5000, 6000, "engine_pause")])
    assert found.seconds["engine_pause", "prefill"] == pytest.approx(3.0)
    assert found.precision == pytest.approx(0.25)
    assert found.recall == 1


def test_a_stall_that_no_incident_covers_is_unseen() -> None:
    found = confusion(said(incident(0, 1000, "prefill", 1.0)), [stall(3000, 3400, "prefill", p0=300)])
    assert found.seconds["prefill", UNSEEN] == pytest.approx(0.4)
    assert found.seconds[NOTHING, "prefill"] == pytest.approx(1.0)
    assert (found.precision, found.recall) == (0, 0)


def test_a_chain_is_spread_over_the_true_causes_of_its_stalls() -> None:
    chain = said(incident(0, 4000, "prefill", 4.0, p0=1.0))
    found = confusion(chain, [stall(0, 1500, "prefill", p0=900), stall(3000, 3500, "frontend")])
    assert found.seconds["prefill", "prefill"] == pytest.approx(3.0)
    assert found.seconds["frontend", "prefill"] == pytest.approx(1.0)


def test_what_the_metric_counts_wins_over_the_incidents() -> None:
    counted = said(incident(0, 1000, "prefill", 1.0), prefill=2.0, buffering=0.5)
    found = confusion(counted, [stall(0, 1000, "prefill", p0=2000)])
    assert found.seconds["prefill", "prefill"] == pytest.approx(2.0)
    assert found.seconds[NOTHING, "buffering"] == pytest.approx(0.5)


def test_what_the_machine_did_is_left_out_of_the_shares() -> None:
    incidents = said(incident(0, 1000, "prefill", 1.0, p0=1.0), incident(5000, 6000, "prefill", 1.0, p0=1.0))
    found = confusion(incidents, [stall(0, 1000, "prefill", p0=9), stall(5000, 6000, STARVED)])
    assert (found.precision, found.recall) == (1, 1)
    assert found.discarded == pytest.approx(1.0)


def test_names_that_were_not_in_the_steps() -> None:
    named = said(incident(0, 1000, "prefill", 2.0, p0=0.5, p1=0.3, p9=0.2))
    found = confusion(named, [stall(0, 1000, "prefill", p0=1500, p1=500)])
    assert found.membership == pytest.approx(0.8)  # p9 was not there
    assert found.sharing == pytest.approx(0.5 + 0.25)  # of p0 three quarters were due, of p1 one
