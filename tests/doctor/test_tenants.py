"""What the doctor says of tenants: nothing where they are not told apart."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.doctor.making import parts
from tests.doctor.test_trust import TRUST

from prefillwatch.doctor.examine import examine
from prefillwatch.doctor.figures import Figures
from prefillwatch.doctor.finding import Finding, Seen
from prefillwatch.doctor.look import Look
from prefillwatch.doctor.page import Page
from prefillwatch.doctor.tenants import one_to_all


def found(caused: Mapping[str, float], suffered: Mapping[str, float], gaps: int = 5000) -> list[Finding]:
    figures = Figures(
        server="prefillwatch",
        gaps=parts((gaps, 0.02)),
        caused_by_tenant=caused,
        suffered_by_tenant=suffered,
        trust=TRUST,
    )
    return list(one_to_all(figures))


def test_where_tenants_are_not_told_apart_nothing_is_said() -> None:
    assert found({}, {}) == []


def test_one_that_causes_most_is_named() -> None:
    (finding,) = found({"batch": 8.0, "chat": 1.0, "other": 1.0}, {"chat": 7.0, "search": 3.0, "batch": 0.0})
    assert (finding.seen, finding.runbook) == (Seen.YES, "TenantStallsOthers")
    assert finding.words.startswith("Tenant batch caused 80 % of the 10 s")
    assert "most of it hit chat" in finding.words


@pytest.mark.parametrize(
    ("caused", "suffered"),
    [
        ({"a": 5.0, "b": 5.0}, {"a": 5.0, "b": 5.0}),
        ({"other": 10.0, "a": 0.0}, {"a": 10.0, "other": 0.0}),
        ({"batch": 0.5}, {"chat": 0.5}),
        ({"a": 0.0}, {"a": 0.0}),
    ],
    ids=["everybody to everybody", "nobody in particular", "too little to notice", "nothing"],
)
def test_else_it_is_not_seen(caused: Mapping[str, float], suffered: Mapping[str, float]) -> None:
    assert [finding.seen for finding in found(caused, suffered)] == [Seen.NO]


def test_few_tokens_carry_no_verdict() -> None:
    assert [finding.seen for finding in found({"batch": 8.0}, {"chat": 8.0}, gaps=50)] == [Seen.UNKNOWN]


PAGE = b"""
# TYPE prefillwatch_build_info gauge
prefillwatch_build_info{version="1"} 1
# TYPE prefillwatch_tenant_stall_caused_seconds_total counter
prefillwatch_tenant_stall_caused_seconds_total{tenant="batch",victim="others"} 90
prefillwatch_tenant_stall_caused_seconds_total{tenant="batch",victim="itself"} 1000
prefillwatch_tenant_stall_caused_seconds_total{tenant="chat",victim="others"} 10
# TYPE prefillwatch_tenant_stall_suffered_seconds_total counter
prefillwatch_tenant_stall_suffered_seconds_total{tenant="chat",culprit="others"} 100
prefillwatch_tenant_stall_suffered_seconds_total{tenant="chat",culprit="nobody"} 500
# TYPE prefillwatch_inter_token_latency_seconds histogram
prefillwatch_inter_token_latency_seconds_bucket{model="m",concurrent_prompt="none",le="0.05"} 9000
prefillwatch_inter_token_latency_seconds_bucket{model="m",concurrent_prompt="none",le="+Inf"} 10000
prefillwatch_inter_token_latency_seconds_sum{model="m",concurrent_prompt="none"} 1000
prefillwatch_inter_token_latency_seconds_count{model="m",concurrent_prompt="none"} 10000
"""


def test_it_is_read_from_the_page() -> None:
    report = examine(Look(Page(PAGE)))
    (finding,) = [each for each in report.findings if each.symptom == "tenants"]
    assert finding.seen is Seen.YES
    assert "Tenant batch caused 90 %" in finding.words
