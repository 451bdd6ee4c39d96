"""The reads of the last minute, by slot."""

from __future__ import annotations

import numpy as np

from prefillwatch.analysis.arrays import IntArray
from prefillwatch.analysis.tokens.read_log import ReadLog
from prefillwatch.units import NS


def ints(*values: int) -> IntArray:
    return np.array(values, np.int64)


def test_the_reads_of_a_slot_between_two_moments_in_order() -> None:
    log = ReadLog()
    log.add(ints(1, 2, 1), ints(30, 10, 20))
    log.add(ints(2, 1), ints(40, 50))
    assert log.of(1, 20, 50) == [20, 30, 50]
    assert log.of(2, 0, 39) == [10]
    assert log.of(3, 0, 99) == []


def test_a_part_of_it_answers_the_same_about_its_time() -> None:
    log = ReadLog()
    for at in range(0, 100, 10):
        log.add(ints(1, 2), ints(at, at + 1))
    assert log.between(30, 50).of(1, 30, 50) == log.of(1, 30, 50) == [30, 40, 50]


def test_what_is_older_than_a_minute_is_forgotten() -> None:
    log = ReadLog()
    for second in range(200):
        log.add(ints(1), ints(second * NS))
        log.add(ints(), ints())
    assert log.of(1, 0, 200 * NS) == [second * NS for second in range(139, 200)]


def test_of_very_many_the_newest_are_kept() -> None:
    log = ReadLog()
    for batch in range(5):
        log.add(np.ones(90_000, np.int64), np.arange(90_000, dtype=np.int64) + batch * 90_000)
    kept = log.of(1, 0, 5 * 90_000)
    assert (len(kept), kept[-1]) == (180_000, 5 * 90_000 - 1)
