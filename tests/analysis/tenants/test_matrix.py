"""Stall seconds by culprit and victim: of the last hour, and bounded."""

from __future__ import annotations

from prefillwatch.analysis.tenants import BlameMatrix
from prefillwatch.units import NS

MINUTE_NS = 60 * NS


def test_pairs_are_summed_and_the_largest_come_first() -> None:
    matrix = BlameMatrix()
    for culprit, victim, seconds in (("a", "b", 1.0), ("b", "a", 5.0), ("a", "b", 2.0), ("a", "a", 1.0)):
        matrix.add(culprit, victim, seconds, 0)
    assert list(matrix.pairs(0).items()) == [(("b", "a"), 5.0), (("a", "b"), 3.0), (("a", "a"), 1.0)]


def test_what_is_older_than_an_hour_is_gone() -> None:
    matrix = BlameMatrix()
    for minute in range(0, 120, 10):
        matrix.add("a", "b", 1.0, minute * MINUTE_NS)
    assert matrix.pairs(119 * MINUTE_NS) == {("a", "b"): 6.0}
    assert matrix.pairs(400 * MINUTE_NS) == {}


def test_a_verdict_that_comes_late_counts() -> None:
    matrix = BlameMatrix()
    matrix.add("a", "b", 1.0, 10 * MINUTE_NS)
    matrix.add("a", "b", 1.0, 9 * MINUTE_NS)
    assert matrix.pairs(10 * MINUTE_NS) == {("a", "b"): 2.0}


def test_pairs_are_bounded_and_their_seconds_are_not_lost() -> None:
    matrix = BlameMatrix()
    for number in range(10_000):
        matrix.add(f"c{number}", f"v{number}", 1.0, 0)
    pairs = matrix.pairs(0)
    assert len(pairs) <= 4097
    assert sum(pairs.values()) == 10_000
