"""Which streams move together. Slots 0 to 2 are on engine 0, 3 and 4 on engine 1, 5 is asked about."""

from __future__ import annotations

import numpy as np
import pytest

from prefillwatch.analysis.engines.co_movement import CoMovement
from prefillwatch.units import MS

ON = np.array([0, 0, 0, 1, 1, -1])
ENGINE = {0: 20.0, 1: 23.0}  # milliseconds between its steps
ENOUGH = 3.0


def beats(engine: int, since: float, until: float) -> list[float]:
    return [at for at in np.arange(0, until, ENGINE[engine]).tolist() if at >= since]


def moved(*parts: tuple[int, list[float]], until: float = 1000.0) -> CoMovement:
    """Reads of slots; what was told up to a moment has been weighed."""
    moves = CoMovement()
    for slot in range(len(ON)):
        moves.begin(slot)
    for slot, times in parts:
        moves.reads(np.full(len(times), slot), np.array([round((at + 0.3 * slot) * MS) for at in times]))
    moves.weigh(round(until * MS), ON, 2)
    return moves


def both(until: float = 1000.0) -> list[tuple[int, list[float]]]:
    return [(slot, beats(int(ON[slot]), 0, until)) for slot in range(5)]


@pytest.mark.parametrize("engine", [0, 1])
def test_a_stream_is_on_the_engine_whose_reads_it_falls_in_with(engine: int) -> None:
    scores = moved(*both(), (5, beats(engine, 500, 1000))).scores(5)
    assert scores[engine] > ENOUGH
    assert scores[1 - engine] < -ENOUGH


def test_a_stream_of_neither_is_on_none() -> None:
    scores = moved(*both(), (5, [at + 11.0 for at in np.arange(500, 1000, 31.0)])).scores(5)
    assert scores[:2].max() < -ENOUGH


def test_a_few_reads_in_step_by_chance_are_not_enough() -> None:
    scores = moved(*both(), (5, [460.0, 480.0])).scores(5)
    assert abs(scores[0]) < ENOUGH


def test_who_reads_on_while_an_engine_reads_a_prompt_is_not_on_it() -> None:
    """In step with it by chance until then."""
    silent = [(slot, beats(0, 0, 500) + beats(0, 900, 1000)) for slot in range(3)]
    before = moved(*silent, (5, beats(0, 300, 500)), until=480).scores(5)
    after = moved(*silent, (5, beats(0, 300, 900)), until=880).scores(5)
    assert before[0] > ENOUGH
    assert after[0] < -ENOUGH


def test_being_near_to_one_of_many_is_not_being_with_them() -> None:
    """A stream of another engine among them is found, too."""
    strange = [at + 9.0 for at in beats(0, 0, 1000)]
    scores = moved((0, beats(0, 0, 1000)), (1, beats(0, 0, 1000)), (2, strange), (5, strange))
    assert scores.scores(5)[0] < -ENOUGH
    assert scores.scores(2)[0] < -ENOUGH
    assert scores.scores(0)[0] > 0


def test_alone_on_its_engine_nothing_is_known() -> None:
    moves = CoMovement()
    moves.begin(0)
    moves.reads(np.zeros(20, np.int64), np.arange(20) * 20 * MS)
    moves.weigh(400 * MS, np.array([0]), 1)
    assert moves.scores(0)[0] == 0


def test_a_slot_begins_anew() -> None:
    moves = moved(*both(), (5, beats(0, 0, 1000)))
    moves.begin(5)
    assert not moves.scores(5).any()


def test_what_one_read_says() -> None:
    """Engine 0 covers 37 % of the time: 5 reads of its streams, near to each of which are 6.6 ms of 90."""
    its = [(slot, [10.0, 30.0, 50.0, 70.0, 90.0]) for slot in (0, 1, 2)]
    near = moved(*its, (5, [50.0]), until=100).scores(5)[0]
    far = moved(*its, (5, [40.0]), until=100).scores(5)[0]
    assert near == pytest.approx(0.5 * np.log(0.95 / 0.37), abs=0.01)
    assert far == pytest.approx(0.5 * np.log(0.05 / 0.63), abs=0.01)


def test_what_was_is_forgotten_in_two_hundred_reads() -> None:
    moves = moved(*both(), (5, beats(0, 0, 400)), until=400)
    before = moves.scores(5)[0]
    nobody = np.full(len(ON), -1)
    moves.reads(np.full(200, 5), (np.arange(200) * 20 + 500) * MS)
    moves.weigh(5000 * MS, nobody, 2)
    assert moves.scores(5)[0] == pytest.approx(0.37 * before, rel=0.05)


def test_what_is_certain_can_be_unlearned() -> None:
    """However long two moved together, half a second apart parts them."""
    long = moved(*both(9000.0), (5, beats(0, 0, 9000)), until=9000)
    assert 12 < long.scores(5)[0] < 26
