"""Which gaps and steps may teach what a step takes."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np
import pytest

from prefillwatch.analysis.tokens import Flow, StepFlow
from prefillwatch.units import MS


def taught(*gaps_ms: float, waited_ms: float = 20, batch: int = 1) -> list[bool]:
    """Gaps of one stream, so many handed over at a time."""
    flow = Flow()
    flow.begin(0, 1000 * MS, round(waited_ms * MS))
    ends = list(accumulate(gaps_ms, initial=1000.0))
    found: list[bool] = []
    spans = list(pairwise(round(at * MS) for at in ends))
    for first in range(0, len(spans), batch):
        part = np.array(spans[first : first + batch], np.int64)
        found += flow.teaches(np.zeros(len(part), np.int64), part[:, 0], part[:, 1]).tolist()
    return found


@pytest.mark.parametrize("batch", [1, 3, 99])
def test_a_steady_stream_teaches_whatever_its_pace(batch: int) -> None:
    assert taught(20, 20, 25, 20, batch=batch) == [True] * 4
    assert taught(300, 310, 290, batch=batch) == [False, True, True]


@pytest.mark.parametrize("batch", [1, 3, 99])
def test_neither_a_delay_teaches_nor_what_was_held_back_by_it(batch: int) -> None:
    gaps = [20, 20, 2000, *[1] * 100, 20, 20, *[20] * 10]
    expected = [True, True, False, *[False] * 100, *[False] * 7, *[True] * 5]
    assert taught(*gaps, batch=batch) == expected


@pytest.mark.parametrize("batch", [1, 99])
def test_a_plateau_teaches_from_its_second_gap_on(batch: int) -> None:
    assert taught(20, 105, 105, 105, batch=batch) == [True, False, True, True]


def test_a_first_token_that_was_waited_for_is_a_delay_too() -> None:
    assert taught(1, 1, 300, 20, waited_ms=2000) == [False, False, False, False]
    assert taught(20, 20, waited_ms=80) == [True, True]
    assert taught(20, 20, 4, waited_ms=2000) == [True, True, False], "served as usual, and held back"


@pytest.mark.parametrize(("gap", "teaches"), [(118, True), (122, False)])
def test_four_times_the_gap_before_is_a_jump(gap: float, teaches: bool) -> None:
    assert taught(30, gap) == [True, teaches]


def test_what_is_shorter_than_a_tenth_of_a_second_is_no_delay_however_much_it_jumps() -> None:
    assert taught(10, 95) == [True, True]
    assert taught(10, 105) == [True, False]


def test_five_milliseconds_after_a_late_first_token_an_engine_may_have_made_the_next() -> None:
    assert taught(20, 20, 4.5, waited_ms=2000) == [True, True, False]
    assert taught(20, 20, 5.5, waited_ms=2000) == [True, True, True]


def test_one_stream_has_no_say_in_another_ones_flow() -> None:
    flow = Flow()
    for slot in range(100):
        flow.begin(slot, 1000 * MS, 0)
    slots = np.array([7, 80], np.int64)
    starts = np.array([1000, 1000], np.int64) * MS
    assert flow.teaches(slots, starts, starts + 20 * MS).tolist() == [True, True]
    starts += 20 * MS
    assert flow.teaches(slots, starts, np.array([2000, 1030], np.int64) * MS).tolist() == [False, True]
    starts = np.array([2000, 2000], np.int64) * MS
    assert flow.teaches(slots, starts, starts + 2 * MS).tolist() == [False, True]


def test_steps_likewise() -> None:
    flow, at = StepFlow(), 1000
    found = []
    for took in (20, 20, 2000, 1, 1, 300, 310, 20):
        found.append(flow.teaches(at * MS, (at + took) * MS))
        at += took
    assert found == [True, True, False, False, False, False, True, False]


def test_steps_after_a_first_token_that_was_waited_for() -> None:
    flow = StepFlow()
    flow.woke(1000 * MS, 2000 * MS)
    assert not flow.teaches(1000 * MS, 1001 * MS)
    assert flow.teaches(1300 * MS, 1320 * MS)


def test_a_long_step_that_a_prompt_explains_teaches_and_takes_little_from_those_after_it() -> None:
    flow = StepFlow()
    assert flow.teaches(1000 * MS, 1020 * MS)
    assert flow.teaches(1020 * MS, 1320 * MS, carries=True)
    assert not flow.teaches(1320 * MS, 1322 * MS), "made before, since no engine is as quick"
    assert flow.teaches(1322 * MS, 1342 * MS)
