"""Deadlines every 100 ms, told in milliseconds."""

import numpy as np
import pytest

from prefillwatch.analysis.deadlines.fluidity import Fluidity
from prefillwatch.units import MS


def play(gaps_ms: list[int], tokens: list[int] | None = None, *, together: bool = False) -> list[tuple[int, int]]:
    """(deadlines, misses) of each gap of one stream; ``together`` hands them over in one batch."""
    books = Fluidity(100 * MS)
    books.begin(70)
    counts = tokens or [1] * len(gaps_ms)
    steps = [list(range(len(gaps_ms)))] if together else [[i] for i in range(len(gaps_ms))]
    told: list[tuple[int, int]] = []
    for step in steps:
        deadlines, misses = books.gaps(
            np.full(len(step), 70), np.array([gaps_ms[i] * MS for i in step]), np.array([counts[i] for i in step])
        )
        told += list(zip(deadlines.tolist(), misses.tolist(), strict=True))
    return told


def test_tokens_on_time_meet_their_deadlines() -> None:
    assert play([100, 100, 90]) == [(1, 0)] * 3


def test_early_tokens_build_slack_for_a_later_stall() -> None:
    assert play([20] * 10 + [850]) == [(1, 0)] * 11


def test_the_same_stall_early_misses_every_deadline_it_covers() -> None:
    assert play([850] + [20] * 10)[0] == (8, 8)


def test_a_miss_clears_the_slack() -> None:
    assert play([50, 260, 101])[1:] == [(2, 2), (1, 1)]


def test_tokens_that_come_together_are_early_for_the_next() -> None:
    assert play([100, 400, 390], [1, 4, 1]) == [(1, 0), (4 + 3, 4), (1, 0)]


@pytest.mark.parametrize("gaps", [[20, 20, 500, 20], [300, 300], [100, 101, 102, 99, 20, 700]])
def test_a_batch_gives_the_same_as_gap_by_gap(gaps: list[int]) -> None:
    assert play(gaps, together=True) == play(gaps)


def test_streams_do_not_share_slack() -> None:
    books = Fluidity(100 * MS)
    books.begin(0)
    books.begin(1)
    books.gaps(np.array([0]), np.array([10 * MS]), np.array([9]))
    _, misses = books.gaps(np.array([0, 1]), np.array([300 * MS, 300 * MS]), np.array([1, 1]))
    assert misses.tolist() == [0, 3]


def test_a_batch_of_many_streams_gives_the_same_as_gap_by_gap() -> None:
    draw = np.random.default_rng(7)
    slots = np.repeat(np.arange(50), draw.integers(1, 6, 50))
    for latest_ms in (60, 130, 900):  # nobody is late, some are, nearly all are
        together, singly = Fluidity(100 * MS), Fluidity(100 * MS)
        for slot in range(50):
            together.begin(slot)
            singly.begin(slot)
        for _ in range(5):
            gaps = draw.integers(1, latest_ms, len(slots)) * MS
            tokens = draw.integers(1, 4, len(slots))
            each = [singly.gaps(*(column[i : i + 1] for column in (slots, gaps, tokens))) for i in range(len(slots))]
            deadlines, misses = together.gaps(slots, gaps, tokens)
            assert deadlines.tolist() == [int(told[0][0]) for told in each]
            assert misses.tolist() == [int(told[1][0]) for told in each]


def test_a_new_stream_in_an_old_slot_starts_without_slack() -> None:
    books = Fluidity(100 * MS)
    books.begin(0)
    books.gaps(np.array([0]), np.array([10 * MS]), np.array([50]))
    books.begin(0)
    assert books.gaps(np.array([0]), np.array([150 * MS]), np.array([1]))[1].tolist() == [1]


def test_a_target_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="target gap of 0 ns"):
        Fluidity(0)
