"""Who does it to whom: tenants and priorities, from the tap to the metrics, the API and the incidents."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.core.script import Observed, Relay, chunk
from tests.scenarios.playbook import Scene, beat

from prefillwatch.analysis.settings import AnalysisSettings
from prefillwatch.contract.buckets import PRIORITY_CLASSES
from prefillwatch.export import table
from prefillwatch.export.spec import Spec
from prefillwatch.wire.sender import TenantIds

ON = AnalysisSettings(max_tenants=20, priorities=True)
#: A long prompt freezes all who stream for so long.
FREEZE_S = 0.83


def frozen(*victims: str, culprit: str, settings: AnalysisSettings = ON) -> Scene:
    """A stream of each of these tenants, and a long prompt of the culprit."""
    scene = Scene(settings)
    for tenant in victims:
        scene.victims(1, beat(21, 12_000, (5000, 1000 * FREEZE_S)), tenant=tenant)
    scene.prompt(4900, 6000, "lump", tenant=culprit).answers(beat(21, 6200, start=5830)).ends(6210)
    return scene.play()


def by_tenant(scene: Scene, spec: Spec) -> dict[tuple[str, ...], float]:
    return {labels: value for labels, value in scene.observed.values(spec).items() if value}


def total(scene: Scene, spec: Spec, **where: str) -> float:
    at = {spec.label_names.index(name): value for name, value in where.items()}
    values = scene.observed.values(spec).items()
    return sum(value for labels, value in values if all(labels[place] == wanted for place, wanted in at.items()))


def test_one_tenant_freezes_another() -> None:
    scene = frozen("chat", "chat", culprit="batch")
    lost = 2 * (FREEZE_S - 0.021)
    assert by_tenant(scene, table.TENANT_STALL_CAUSED) == {("batch", "others"): pytest.approx(lost, abs=0.1)}
    assert by_tenant(scene, table.TENANT_STALL_SUFFERED) == {("chat", "others"): pytest.approx(lost, abs=0.1)}


def test_what_one_does_to_itself_is_told_apart() -> None:
    scene = frozen("batch", "chat", culprit="batch")
    caused, suffered = by_tenant(scene, table.TENANT_STALL_CAUSED), by_tenant(scene, table.TENANT_STALL_SUFFERED)
    assert caused.keys() == {("batch", "others"), ("batch", "itself")}
    assert suffered.keys() == {("chat", "others"), ("batch", "itself")}
    assert caused[("batch", "others")] == suffered[("chat", "others")]
    assert caused[("batch", "itself")] == suffered[("batch", "itself")]


def test_nothing_is_lost_whoever_did_it_to_whomever() -> None:
    """By both accounts, tenants' and priorities', seconds are those of the model's own counters, to the last."""
    scene = Scene(ON)
    pairs = itertools.cycle([("a", 0), ("b", 5), ("", -1)])
    for _ in range(6):
        tenant, priority = next(pairs)
        times = beat(21, 22_000, (5000, 830), (9000, 900), (14_000, 700))
        scene.victims(1, times, tenant=tenant, priority=priority)
    scene.prompt(4900, 6000, tenant="a").answers(beat(21, 6200, start=5830)).ends(6210)
    for tenant in ("b", "c"):  # together
        scene.prompt(8900, 3000, tenant=tenant, priority=-7).answers(beat(21, 9_990, start=9_901)).ends(10_000)
    # And the third freeze is nobody's.
    scene.healthy(500, 22_000, running=6)
    scene.play()
    all_seconds, blamed = total(scene, table.STALL_SECONDS), total(scene, table.PREFILL_BLAME)
    assert 0 < blamed < all_seconds
    for caused, suffered in (
        (table.TENANT_STALL_CAUSED, table.TENANT_STALL_SUFFERED),
        (table.PRIORITY_STALL_CAUSED, table.PRIORITY_STALL_SUFFERED),
    ):
        assert total(scene, caused) == pytest.approx(blamed)
        assert total(scene, suffered) == pytest.approx(all_seconds)
        for who in ("others", "itself"):
            assert total(scene, caused, victim=who) == pytest.approx(total(scene, suffered, culprit=who))
        assert total(scene, suffered, culprit="nobody") == pytest.approx(all_seconds - blamed)
    found = scene.observed.observation.tenants()
    for name in ("tenant_matrix", "priority_matrix"):
        matrix = found[name]
        assert sum(map(sum, matrix["stall_seconds"])) + matrix["rest_seconds"] == pytest.approx(blamed)


def test_the_matrix_says_who_does_it_to_whom() -> None:
    found = frozen("chat", "chat", "batch", culprit="batch").observed.observation.tenants()["tenant_matrix"]
    assert (found["culprits"], found["victims"]) == (["batch"], ["chat", "batch"])
    ((to_chat, to_itself),) = found["stall_seconds"]
    assert to_chat == pytest.approx(2 * to_itself, rel=0.05)


def test_two_without_a_place_are_still_two() -> None:
    """Both are `other` in labels, and one suffers from the other, not from itself."""
    scene = Scene(AnalysisSettings(max_tenants=1))
    scene.victims(1, beat(21, 3000), tenant="first")
    scene.victims(1, beat(21, 12_000, (5000, 830)), tenant="chat")
    scene.prompt(4900, 6000, tenant="batch").answers(beat(21, 6200, start=5830)).ends(6210)
    scene.play()
    assert by_tenant(scene, table.TENANT_STALL_CAUSED).keys() == {("other", "others")}
    assert by_tenant(scene, table.TENANT_STALL_SUFFERED).keys() == {("other", "others")}


def test_incidents_name_the_tenants_of_culprits_and_of_victims() -> None:
    incident = frozen("chat", "search", "", culprit="batch").incident()
    assert [each["tenant"] for each in incident["culprits"]] == ["batch"]
    assert {each["tenant"] for each in incident["victim_tenants"]} == {"chat", "search"}
    lost = sum(each["stall_seconds"] for each in incident["victim_tenants"])
    assert lost == pytest.approx(incident["stall_seconds"] * 2 / 3, rel=0.05)


def test_tokens_requests_and_percentiles() -> None:
    scene = frozen("chat", "chat", culprit="batch")
    assert total(scene, table.TENANT_REQUESTS, tenant="chat") == 2
    assert total(scene, table.TENANT_REQUESTS, tenant="batch") == 1
    assert total(scene, table.TENANT_PROMPT_TOKENS, tenant="batch") == 6000
    assert total(scene, table.TENANT_GENERATED_TOKENS) == total(scene, table.GENERATED_TOKENS)
    assert total(scene, table.TENANT_REQUESTS_WITHIN_SLO) == total(scene, table.REQUESTS_WITHIN_SLO) > 0


def test_percentiles_are_of_the_window_and_of_the_tenant() -> None:
    scene = Scene(ON)
    scene.victims(3, beat(21, 9_000), tenant="quick")
    scene.victims(3, beat(63, 9_000), tenant="slow")
    scene.play(until=9_100)
    gaps = scene.observed.values(table.TENANT_INTER_TOKEN_LATENCY_P99)
    assert gaps[("quick", "10s")] == pytest.approx(0.021, rel=0.02)
    assert gaps[("slow", "10s")] == pytest.approx(0.063, rel=0.02)
    first = scene.observed.values(table.TENANT_TIME_TO_FIRST_TOKEN_P99)
    assert first[("quick", "10s")] == pytest.approx(0.09, rel=0.1)
    scene.observed.advance(60_000)
    assert ("quick", "10s") not in scene.observed.values(table.TENANT_INTER_TOKEN_LATENCY_P99), "absent, never 0"


def test_priorities_come_from_the_body_and_the_header_goes_before_it() -> None:
    observed = Observed(ON)
    relay = Relay(observed)
    cases: list[tuple[dict[str, Any], int | None]] = [
        ({}, None),
        ({"priority": -50}, None),
        ({"priority": 1}, None),
        ({"priority": 1}, 2),
        ({}, -1),
    ]
    for at, (body, header) in enumerate(cases):
        stream = relay.request(100 * at, body, priority=header)
        relay.response(100 * at + 10, stream)
        relay.data(100 * at + 20, stream, chunk())
        relay.end(100 * at + 30, stream)
    relay.flush()
    observed.advance(2000)
    counts = {labels[0]: value for labels, value in observed.values(table.PRIORITY_REQUESTS).items()}
    assert counts == dict.fromkeys(PRIORITY_CLASSES, 1)


def test_the_user_of_a_body_is_a_tenant_by_a_name_that_is_made_here() -> None:
    observed = Observed(ON)
    ids = TenantIds("key")
    observed.core.relays.bodies.name_user = ids
    relay = Relay(observed)
    bodies: list[dict[str, Any]] = [{"user": "jane@example.org"}, {}, {"user": ["x"]}, {"user": "\ud800" * 9000}]
    for at, body in enumerate(bodies):
        relay.response(100 * at + 10, relay.request(100 * at, body))
    relay.flush()
    assert [each.tenant for each in observed.ledger.requests.values()] == [ids("jane@example.org"), "", "", ""]
    assert "jane" not in repr([each.facts for each in observed.taps.relays[0].streams.values()])


def test_who_is_not_asked_for_leaves_no_trace() -> None:
    observed = Observed()
    relay = Relay(observed)
    relay.request(0, {"user": "jane@example.org", "priority": 7})
    relay.flush()
    assert [each.tenant for each in observed.ledger.requests.values()] == [""]
    assert "jane" not in repr([each.facts for each in observed.taps.relays[0].streams.values()])


def test_off_nothing_is_counted_and_nothing_is_shown() -> None:
    scene = frozen("chat", culprit="batch", settings=AnalysisSettings())
    assert scene.observed.ledger.senders is None
    specs = [spec for spec in table.TABLE if spec.name.startswith(("tenant_", "priority_"))]
    assert len(specs) == 16
    assert not any(scene.observed.values(spec) for spec in specs)
    assert not any(scene.observed.observation.tenants()[name] for name in ("tenants", "priorities"))


def served(relay: Relay, at: float, tenant: str, tokens: int = 3) -> None:
    stream = relay.request(at, tenant=tenant)
    relay.response(at + 10, stream)
    for number in range(tokens):
        relay.data(at + 20 + number, stream, chunk())
    relay.end(at + 30 + tokens, stream)


def test_a_flood_of_tenants_makes_no_more_series_than_twenty_and_other() -> None:
    """Ten thousand are in tests/analysis/tenants; here are fewer, all the way."""
    observed = Observed(ON)
    relay = Relay(observed)
    for number in range(600):
        served(relay, number, f"tenant-{number}")
        if number % 100 == 99:
            relay.flush()
            observed.advance(number)
    relay.flush()
    observed.advance(3000)
    requests = observed.values(table.TENANT_REQUESTS)
    assert len(requests) == 21
    assert sum(requests.values()) == 600
    assert requests[("other",)] == 580
    names = {labels[0] for spec in table.TABLE if "tenant" in spec.label_names for labels in observed.values(spec)}
    assert len(names) == 21
    assert len(observed.observation.tenants()["tenants"]) == 21


def test_counters_of_one_that_comes_back_go_on_where_they_were() -> None:
    observed = Observed(AnalysisSettings(max_tenants=1))
    relay = Relay(observed)
    hour = 3_600_000.0

    def requests_of(tenant: str) -> float | None:
        relay.flush()
        observed.advance(observed.now_ms + 1000)
        return observed.values(table.TENANT_REQUESTS).get((tenant,))

    for at in range(0, 500, 100):
        served(relay, at, "a")
    assert requests_of("a") == 5
    observed.now_ms += 2 * hour
    assert requests_of("a") is None, "idle for an hour: its series are gone"
    served(relay, observed.now_ms, "b")
    served(relay, observed.now_ms + 100, "a")
    assert (requests_of("b"), requests_of("a"), requests_of("other")) == (1, None, 1)
    observed.now_ms += 2 * hour
    requests_of("b")
    served(relay, observed.now_ms, "a")
    assert requests_of("a") == 6
    assert requests_of("other") == 1, "what it did as one of the others stays theirs"
