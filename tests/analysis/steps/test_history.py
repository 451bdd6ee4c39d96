"""The largest prompt in service during a gap."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.analysis.steps.history import StepHistory, joined, largest_during


def history(*steps: tuple[int, int, int]) -> StepHistory:
    found = StepHistory()
    for step in steps:
        found.append(*step)
    return found


def largest(steps: StepHistory, *gaps: tuple[int, int]) -> list[int]:
    starts = np.array([start for start, _ in gaps], np.int64)
    ends = np.array([end for _, end in gaps], np.int64)
    return largest_during(starts, ends, steps.columns()).tolist()


def test_a_gap_covers_the_steps_that_ended_in_it() -> None:
    steps = history((0, 10, 0), (10, 100, 2500), (100, 110, 0), (110, 120, 0))
    # Reads come one or two units after the end of their step.
    assert largest(steps, (11, 101), (101, 112), (112, 122)) == [2500, 0, 0]


def test_a_gap_over_several_steps_gets_the_largest() -> None:
    steps = history((0, 10, 300), (10, 20, 6000), (20, 30, 800), (30, 40, 0))
    assert largest(steps, (0, 40), (20, 40), (35, 40), (0, 15)) == [6000, 800, 0, 300]


def test_a_gap_within_a_step_gets_that_one() -> None:
    assert largest(history((0, 10, 0), (10, 100, 2500)), (20, 50)) == [2500]


def test_before_and_after_all_steps_there_is_nothing() -> None:
    assert largest(history((100, 110, 300)), (0, 50), (120, 130)) == [0, 0]
    assert largest(history(), (0, 50)) == [0]
    assert largest(history((100, 110, 300))) == []


def test_old_steps_are_forgotten() -> None:
    steps = history(*((at, at + 10, at) for at in range(0, 1000, 10)))
    steps.forget(500, 10**6)
    assert (len(steps), largest(steps, (300, 350), (600, 610))) == (51, [0, 600])
    steps.forget(0, 3)
    assert len(steps) == 3


def test_it_holds_a_window_over_any_number_of_steps() -> None:
    steps = StepHistory()
    for at in range(0, 50_000, 10):
        steps.append(at, at + 10, at)
        steps.forget(at - 1000, 10**6)
    assert len(steps) == 102
    assert largest(steps, (49_980, 49_990)) == [49_980]
    assert len(steps._ends) <= 2048


def test_two_stretches_of_steps_are_one() -> None:
    both = joined(history((0, 10, 1)).columns(), history((10, 20, 2)).columns())
    assert largest_during(np.array([0]), np.array([20]), both).tolist() == [2]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=30), st.data())
def test_agrees_with_looking_at_every_step(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    ends = np.cumsum([duration for duration, _ in steps]).tolist()
    spans = [(end - duration, end, tokens) for end, (duration, tokens) in zip(ends, steps, strict=True)]
    start = data.draw(st.integers(0, ends[-1]))
    end = data.draw(st.integers(start + 1, ends[-1] + 5))
    inside = [tokens for _, its_end, tokens in spans if start < its_end <= end]
    around = [tokens for its_start, its_end, tokens in spans if its_start < end and start < its_end]
    assert largest(history(*spans), (start, end)) == [max(inside or around[:1], default=0)]
