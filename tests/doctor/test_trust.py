"""Blind spots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.doctor.making import gaps, histogram

from prefillwatch.doctor.figures import Figures, Moment, Trust
from prefillwatch.doctor.finding import Sort
from prefillwatch.doctor.trust import blind_spots

TRUST = Trust(
    up=True,
    scrape_success=True,
    scrape_failures={},
    kv_signal=True,
    tap_packets=1000.0,
    tap_dropped=0.0,
    lag=histogram([0.001] * 100, (0.01, 0.05, 0.1)),
    usage_reported=True,
    usage_rests=False,
    unparsed={},
    upstream_restarts=0.0,
    refused={"header_line": 5.0},  # which is what it should be
)
CALM = Figures(
    server="prefillwatch",
    engine="vllm",
    seconds=10.0,
    gaps=gaps((500, 0.02)),
    moments=(Moment(decoding=6, in_prefill=1, running=7, waiting=0),) * 5,
    trust=TRUST,
)


def symptoms(figures: Figures) -> dict[str, Sort]:
    return {finding.symptom: finding.sort for finding in blind_spots(figures)}


def test_a_sidecar_that_sees_everything() -> None:
    assert symptoms(CALM) == {}


@pytest.mark.parametrize(
    ("change", "symptom", "sort"),
    [
        ({"up": False}, "upstream_down", Sort.FAULT),
        ({"scrape_success": False}, "scrape_failing", Sort.FAULT),
        ({"kv_signal": False}, "no_kv_signal", Sort.FAULT),
        ({"tap_dropped": 50.0}, "tap_dropped", Sort.FAULT),
        ({"lag": histogram([0.001] * 90 + [0.2] * 10, (0.01, 0.05, 0.1))}, "loop_lag", Sort.FAULT),
        ({"unparsed": {"chat": 3.0}}, "not_understood", Sort.NOTE),
        ({"unread": {"memory": 2.0, "time": 5.0}}, "bodies_unread", Sort.NOTE),
        ({"endpoints": {"other": 10.0, "chat_completions": 90.0}}, "unknown_endpoints", Sort.NOTE),
        ({"usage_reported": False}, "no_usage", Sort.NOTE),
        ({"usage_reported": False, "usage_rests": True}, "usage_refused", Sort.NOTE),
        ({"upstream_restarts": 1.0}, "upstream_restarted", Sort.NOTE),
        ({"refused": {"bodies_full": 2.0}}, "no_room_for_bodies", Sort.NOTE),
        ({"refused": {"clients_full": 2.0, "no_descriptors": 1.0}}, "no_room_for_clients", Sort.NOTE),
        ({"refused": {"loop": 2.0}}, "loop", Sort.NOTE),
        ({"refused": {"write_timeout": 2.0}}, "clients_take_nothing", Sort.NOTE),
        ({"health_failures": {"timeout": 3.0}}, "health_late", Sort.NOTE),
        ({"repaired_streams": 4.0}, "records_lost", Sort.FAULT),
        ({"relays_away": ("1",)}, "relay_away", Sort.FAULT),
        ({"relay_restarts": 2.0, "lost_streams": 7.0}, "relay_ended", Sort.FAULT),
    ],
)
def test_each_blind_spot(change: dict[str, Any], symptom: str, sort: Sort) -> None:
    assert symptoms(replace(CALM, trust=replace(TRUST, **change))) == {symptom: sort}


def test_bodies_that_are_no_prompts_are_nothing() -> None:
    assert symptoms(replace(CALM, trust=replace(TRUST, unread={"content": 9.0}))) == {}
    few = {"other": 2.0, "models": 500.0, "chat_completions": 50.0, "native": 48.0}
    assert symptoms(replace(CALM, trust=replace(TRUST, endpoints=few))) == {}


def test_reasons_of_failed_scrapes_are_named() -> None:
    trust = replace(TRUST, scrape_success=False, kv_signal=False, scrape_failures={"timeout": 3.0, "http_status": 1.0})
    (found,) = blind_spots(replace(CALM, trust=trust))
    assert "(timeout and http_status)" in found.words


def test_a_server_that_is_down_is_not_called_late_as_well() -> None:
    assert symptoms(replace(CALM, trust=replace(TRUST, up=False, health_failures={"refused": 9.0}))) == {
        "upstream_down": Sort.FAULT
    }


def test_what_relays_cost_is_said() -> None:
    (found,) = blind_spots(replace(CALM, trust=replace(TRUST, relay_restarts=2.0, lost_streams=7.0)))
    assert found.words == "2 time(s); 7 requests in flight were cut off."


def test_a_server_that_never_tells_its_cache_is_no_fault() -> None:
    assert symptoms(replace(CALM, engine="llamacpp", trust=replace(TRUST, kv_signal=False))) == {}


def test_a_few_dropped_packets_and_late_wake_ups_are_nothing() -> None:
    late = histogram([0.001] * 999 + [0.2], (0.01, 0.05, 0.1))
    assert symptoms(replace(CALM, trust=replace(TRUST, tap_dropped=5.0, lag=late))) == {}


@pytest.mark.parametrize(
    ("running", "waiting", "decoding", "bypassed"),
    [(7, 0, 6, False), (12, 0, 6, True), (6, 6, 6, True), (2, 0, 1, False), (1, 0, 0, False), (3, 0, 0, True)],
)
def test_requests_past_the_sidecar(running: int, waiting: int, decoding: int, bypassed: bool) -> None:
    moments = (Moment(decoding=decoding, in_prefill=1, running=running, waiting=waiting),) * 3
    assert ("bypass" in symptoms(replace(CALM, moments=moments))) is bypassed


def test_two_looks_may_have_hit_a_request_that_just_ended() -> None:
    assert symptoms(replace(CALM, moments=(Moment(decoding=1, in_prefill=0, running=9, waiting=0),) * 2)) == {}


def test_no_traffic() -> None:
    assert symptoms(replace(CALM, gaps=None, moments=(Moment(decoding=0, running=0),))) == {"idle": Sort.NOTE}
    assert symptoms(Figures(server="llamacpp", moments=(Moment(running=3),))) == {}


def test_a_plugin_that_is_not_told_what_steps_carry() -> None:
    figures = Figures(
        server="vllm", gaps=gaps((500, 0.02)), gaps_beside={"unknown": gaps((500, 0.02))}, by_step=True, moments=()
    )
    assert symptoms(figures) == {"steps_untold": Sort.NOTE}
