"""Which critical alerts page, and whether that was right: on moments and spans checked by hand."""

from __future__ import annotations

import pytest
import yaml
from tests.alerts.shipped import ALERTS
from tests.core.script import Observed
from tests.simulation.paging import EVERY, FIRST_TOKEN_STUCK, HOLDS, STREAM_FREEZE, Pager, held_against

from prefillwatch.export import table

#: What `paging` was written from.
EXPRESSIONS = {
    STREAM_FREEZE: 'prefillwatch_open_gap_seconds{job="prefillwatch"} > 5 or ( '
    'prefillwatch_open_gap_seconds{job="prefillwatch"} and '
    "avg_over_time(instance_model:prefillwatch_frozen_streams_per_decoding_streams:ratio[1m]) > 0.5 )",
    FIRST_TOKEN_STUCK: 'prefillwatch_oldest_first_token_wait_seconds{job="prefillwatch"} > 120 unless '
    'prefillwatch_oldest_first_token_wait_seconds{job="prefillwatch"} <= ignoring (model) group_left () 4 * '
    'max without (model) (prefillwatch_prefill_cost_seconds_per_token{job="prefillwatch"}) * '
    'sum without (model) (prefillwatch_prefilling_tokens{job="prefillwatch"})',
}


@pytest.mark.parametrize("alert", EXPRESSIONS)
def test_the_shipped_rule_is_the_one_that_was_written_again(alert: str) -> None:
    groups = yaml.safe_load((ALERTS / "rules" / "replica.yml").read_text())["groups"]
    rule = next(rule for group in groups for rule in group["rules"] if rule.get("alert") == alert)
    assert " ".join(rule["expr"].split()) == EXPRESSIONS[alert]
    assert rule["for"] == f"{HOLDS[alert] / 1000:.0f}s"


def looked(until: float, **gauges: float) -> Pager:
    pager, observed = Pager(), Observed()
    observed.snapshot = lambda: observed.registry.snapshot()  # type: ignore[method-assign]
    for name, value in gauges.items():
        observed.registry.gauge(getattr(table, name)).set(("m",), value)
    at = 0.0
    while at <= until:
        pager.look(observed, at)
        at += EVERY
    return pager


def test_a_long_gap_pages_once_it_has_lasted() -> None:
    assert looked(20_000, OPEN_GAP=6.0).paged[STREAM_FREEZE] == [15_000.0, 20_000.0]
    assert not looked(60_000, OPEN_GAP=4.0, FROZEN_STREAMS=1, DECODING_STREAMS=3).paged[STREAM_FREEZE]


def test_many_that_are_frozen_most_of_the_time_page_without_one_that_is_for_long() -> None:
    assert looked(20_000, OPEN_GAP=1.0, FROZEN_STREAMS=2, DECODING_STREAMS=3).paged[STREAM_FREEZE]


def test_a_wait_that_its_prompt_explains_does_not_page() -> None:
    waits = {"OLDEST_FIRST_TOKEN_WAIT": 130.0, "PREFILL_COST": 0.001}
    assert looked(40_000, **waits, PREFILLING_TOKENS=1_000).paged[FIRST_TOKEN_STUCK] == [30_000.0, 35_000.0, 40_000.0]
    assert not looked(40_000, **waits, PREFILLING_TOKENS=40_000).paged[FIRST_TOKEN_STUCK]


def test_a_page_is_right_while_there_is_a_reason_and_false_otherwise() -> None:
    reasons = {STREAM_FREEZE: [(10_000.0, 40_000.0)]}
    paged = {STREAM_FREEZE: [30_000.0, 35_000.0, 90_000.0]}
    assert list(held_against(paged, reasons)) == [(STREAM_FREEZE, "right"), (STREAM_FREEZE, "false")]


def test_what_nobody_was_paged_for_was_missed_if_it_lasted_long_enough() -> None:
    reasons = {STREAM_FREEZE: [(0.0, 60_000.0), (100_000.0, 112_000.0)]}
    assert list(held_against({STREAM_FREEZE: []}, reasons)) == [(STREAM_FREEZE, "missed")]
