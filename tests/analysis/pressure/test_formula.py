"""The two formulas: 1 where a promise is just kept, in proportion to the load, and without jumps."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from prefillwatch.analysis.pressure import Load, Riding, capacity, first_token_promise, interference
from prefillwatch.analysis.settings import Slo
from prefillwatch.analysis.tuning import DEFAULT
from prefillwatch.contract.limits import FIRST_TOKEN_PROMISES

SLO = Slo(ttft=2.5, tpot=0.1, itl=0.2)
#: A busy server: 20 ms per step of which 15 are an empty batch's, prompts take a fifth of the time.
BUSY = Load(
    step_s=0.02,
    empty_step_s=0.015,
    decoding=1.0,
    reading=0.2,
    reading_s=0.1,
    allowance_s=2.3,
    waiting=0.1,
    served_per_s=2.0,
)
#: The requests that may wait there: what is served in the time that nine of ten must not exceed.
MAY_WAIT = 2.0 * 2.3 / DEFAULT.pressure.tail


def test_a_long_prompt_was_promised_less() -> None:
    assert [first_token_promise(SLO, tokens) for tokens in (1, 511, 2048, 8191, 32768, 200_000)] == [
        2.5,
        2.5,
        5.0,
        5.0,
        80.0,
        320.0,
    ]
    assert first_token_promise(Slo(ttft=1.0), 3000) == 2.0
    assert len(FIRST_TOKEN_PROMISES) == 6


def test_an_idle_server_has_no_pressure() -> None:
    assert capacity(Load(), SLO).ratio == 0
    assert interference(Riding()).ratio == 0


def test_pace_is_one_where_the_batch_takes_the_promised_time_per_token() -> None:
    assert capacity(replace(BUSY, step_s=0.1), SLO).pace == pytest.approx(1)
    assert capacity(replace(BUSY, step_s=0.0575), SLO).pace == pytest.approx(0.5)
    assert capacity(replace(BUSY, step_s=0.185), SLO).ratio == pytest.approx(2)


def test_half_the_batch_is_half_the_pace() -> None:
    """So that an autoscaler that doubles the servers finds half the pressure, however long an empty step is."""
    empty_s, each_s = 0.04, 0.001
    whole, half = (capacity(replace(BUSY, step_s=empty_s + n * each_s, empty_step_s=empty_s), SLO) for n in (80, 40))
    assert half.pace == pytest.approx(whole.pace / 2)


def test_an_empty_batch_that_breaks_the_promise_is_no_want_of_servers() -> None:
    assert capacity(replace(BUSY, step_s=0.15, empty_step_s=0.12), SLO).pace == 0


def test_who_decodes_seldom_presses_in_proportion() -> None:
    busy = replace(BUSY, step_s=0.1)
    assert capacity(replace(busy, decoding=0.25), SLO).pace == pytest.approx(1)
    assert capacity(replace(busy, decoding=0.05), SLO).pace == pytest.approx(0.2)


def test_reading_is_one_where_nine_of_ten_prompts_are_just_in_time() -> None:
    """A queue with one server that is busy for the part r of the time: nine of ten wait 2.3 r / (1 - r) readings."""
    r = 1 / (1 + 2.3 * BUSY.reading_s / BUSY.allowance_s)
    assert capacity(replace(BUSY, reading=r), SLO).reading == pytest.approx(1)
    assert 2.3 * r / (1 - r) * BUSY.reading_s == pytest.approx(BUSY.allowance_s)
    assert capacity(replace(BUSY, reading=r / 4), SLO).reading == pytest.approx(0.25)


def test_as_many_waiting_as_may_is_one_and_more_have_to_be_served_within_a_minute() -> None:
    assert capacity(replace(BUSY, waiting=MAY_WAIT), SLO).waiting == pytest.approx(1)
    assert capacity(replace(BUSY, waiting=MAY_WAIT + 60), SLO).waiting == pytest.approx(1.5)
    assert capacity(replace(BUSY, waiting=MAY_WAIT / 10), SLO).waiting < 0.3


def test_a_stuck_engine_is_not_a_thousand_servers_wanted() -> None:
    stuck = capacity(replace(BUSY, waiting=1e6, served_per_s=0.0), SLO)
    assert stuck.ratio == pytest.approx(4)


@pytest.mark.parametrize(
    ("field", "most"),
    [("step_s", 0.3), ("decoding", 1.0), ("reading", 1.0), ("reading_s", 6.0), ("waiting", 50.0)],
)
def test_nothing_jumps_and_more_load_is_more_pressure(field: str, most: float) -> None:
    steps, large = 2000, replace(BUSY, step_s=0.09)
    ratios = [capacity(replace(large, **{field: most * each / steps}), SLO).ratio for each in range(steps + 1)]
    assert all(before <= after for before, after in pairwise(ratios))
    assert max(after - before for before, after in pairwise(ratios)) < 0.05
    assert ratios[-1] > ratios[0]


def test_interference_is_the_worse_of_gaps_and_waits() -> None:
    assert interference(Riding(worst_gaps=4.3, held_up=0.1)).ratio == pytest.approx(4.3)
    assert interference(Riding(worst_gaps=0.3, held_up=1 / 2.3)).ratio == pytest.approx(1)
