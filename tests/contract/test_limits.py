"""Promises can be measured, sizes are those of the buckets, and reasons are those of the relay."""

from __future__ import annotations

import pytest

from prefillwatch.analysis.requests import PromptBuckets
from prefillwatch.contract import limits
from prefillwatch.contract.buckets import (
    FIRST_TOKEN_BOUNDS,
    GAP_BOUNDS,
    LAG_BOUNDS,
    PER_TOKEN_BOUNDS,
)
from prefillwatch.engine.kinds import KINDS
from prefillwatch.wire.reasons import RelayReason

SIZES = PromptBuckets()


def test_a_promise_is_an_edge_of_its_histogram() -> None:
    """Else those who read the histogram (alerts, dashboards, doctor) could not count what breaks it."""
    assert limits.ITL_PROMISE in GAP_BOUNDS
    assert limits.PER_TOKEN_PROMISE in PER_TOKEN_BOUNDS
    assert set(limits.FIRST_TOKEN_PROMISES.values()) <= set(FIRST_TOKEN_BOUNDS)
    assert limits.LOOP_LAG in LAG_BOUNDS
    assert {limits.STALL_MIN_GAP, limits.STALL_ALWAYS} <= set(GAP_BOUNDS)


def test_each_size_of_a_prompt_has_a_promise_and_longer_ones_have_longer() -> None:
    assert tuple(limits.FIRST_TOKEN_PROMISES) == SIZES.labels
    promises = list(limits.FIRST_TOKEN_PROMISES.values())
    assert promises == sorted(promises)
    assert promises[0] == limits.FIRST_TOKEN_PROMISE


def test_short_prompts_are_the_first_sizes() -> None:
    assert SIZES.labels[: len(limits.SHORT_PROMPTS)] == limits.SHORT_PROMPTS
    assert {SIZES.label(limits.SHORT_TOKENS - 1), SIZES.label(0)} == set(limits.SHORT_PROMPTS)
    assert SIZES.label(limits.SHORT_TOKENS) not in limits.SHORT_PROMPTS


@pytest.mark.parametrize(
    ("noticed", "trouble"),
    [
        (limits.STALL_SHARE_NOTICED, limits.STALL_SHARE),
        (limits.INTERFERENCE_SEEN, limits.INTERFERENCE_NOTICED),
        (limits.INTERFERENCE_NOTICED, limits.INTERFERENCE),
        (limits.KV_USAGE_NOTICED, limits.KV_USAGE),
        (limits.COST_FIT, limits.COST_FIT_GOOD),
        (limits.STALL_MIN_GAP, limits.STALL_ALWAYS),
    ],
)
def test_what_is_noticed_comes_before_what_is_trouble(noticed: float, trouble: float) -> None:
    assert noticed < trouble


def test_reasons_for_want_of_room_are_reasons_of_the_relay() -> None:
    assert set(limits.WANT_OF_ROOM) <= {reason.value for reason in RelayReason}


def test_servers_without_a_cache_are_kinds_that_we_know() -> None:
    assert set(limits.SERVERS_WITHOUT_KV) <= {kind.name for kind in KINDS}
