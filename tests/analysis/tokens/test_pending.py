"""Gaps come out when their moment has passed, none is lost, and there is a limit."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.analysis.tokens.pending import Gaps, PendingGaps, join


def gaps(*spans: tuple[int, int]) -> Gaps:
    starts = np.array([start for start, _ in spans], np.int64)
    ends = np.array([end for _, end in spans], np.int64)
    ones = np.ones(len(spans), np.int64)
    return Gaps(ones, ones, starts, ends, ones, ones > 0)


def ends(batch: Gaps | None) -> list[int]:
    return [] if batch is None else sorted(batch.end_ns.tolist())


def test_a_gap_comes_out_once_its_end_has_passed() -> None:
    pending = PendingGaps(100)
    pending.add(gaps((0, 10), (0, 20)))
    assert ends(pending.due(9)) == []
    assert ends(pending.due(10)) == [10]
    assert ends(pending.due(30)) == [20]
    assert ends(pending.due(30)) == []
    assert len(pending) == 0


def test_beyond_the_limit_the_oldest_come_out_early() -> None:
    pending = PendingGaps(3)
    for second in range(5):
        pending.add(gaps((second, second + 1)))
    assert ends(pending.due(0)) == [1, 2]
    assert len(pending) == 3


def test_a_long_gap_in_an_early_chunk_does_not_hold_back_later_ones() -> None:
    pending = PendingGaps(100)
    pending.add(gaps((0, 500), (0, 10)))
    pending.add(gaps((10, 20)))
    assert ends(pending.due(20)) == [10, 20]
    assert ends(pending.due(500)) == [500]


@given(st.lists(st.lists(st.integers(1, 1000), min_size=1, max_size=8), max_size=8), st.lists(st.integers(0, 1000)))
def test_nothing_is_lost_and_nothing_comes_early(batches: list[list[int]], moments: list[int]) -> None:
    pending = PendingGaps(10_000)
    for batch in batches:
        pending.add(gaps(*((0, end) for end in batch)))
    seen: list[int] = []
    for moment in sorted(moments):
        out = ends(pending.due(moment))
        assert all(end <= moment for end in out)
        seen += out
    seen += ends(pending.due(1000))
    assert sorted(seen) == sorted(end for batch in batches for end in batch)


def test_join_keeps_columns_together() -> None:
    both = join([gaps((1, 2)), gaps((3, 4), (5, 6))])
    assert len(both) == 3
    assert both.start_ns.tolist() == [1, 3, 5]
    assert both.end_ns.tolist() == [2, 4, 6]
