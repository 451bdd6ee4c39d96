from __future__ import annotations

import math

import pytest
from tests.doctor.making import histogram

from prefillwatch.doctor.histogram import Histogram, from_cumulative, together

BOUNDS = (0.01, 0.1, 1.0)


def test_from_the_samples_of_a_page() -> None:
    found = from_cumulative({math.inf: 10.0, 0.1: 7.0, 0.01: 4.0, 1.0: 9.0}, 3.5)
    assert found == Histogram(BOUNDS, (4.0, 3.0, 2.0, 1.0), 3.5)
    assert found.count == 10
    assert found.mean == 0.35


def test_no_samples_are_no_histogram() -> None:
    assert from_cumulative({}) is None


def test_a_page_that_was_cut_off_lacks_what_it_lacks() -> None:
    assert from_cumulative({0.01: 4.0, 0.1: 7.0}) == Histogram((0.01, 0.1), (4.0, 3.0, 0.0))


def test_counts_that_fall_from_bound_to_bound_count_nothing() -> None:
    assert from_cumulative({0.01: 4.0, 0.1: 3.0, math.inf: 5.0}) == Histogram((0.01, 0.1), (4.0, 0.0, 1.0))


def test_quantiles_are_linear_within_a_bucket_and_tell_its_bounds() -> None:
    found = Histogram(BOUNDS, (50.0, 50.0, 0.0, 0.0))
    median, p75 = found.quantile(0.5), found.quantile(0.75)
    assert median is not None
    assert (median.value, median.low, median.high) == (0.01, 0.0, 0.01)
    assert p75 is not None
    assert p75.value == pytest.approx(0.055)
    assert (p75.low, p75.high) == (0.01, 0.1)


def test_beyond_the_last_bound_only_that_is_known() -> None:
    found = Histogram(BOUNDS, (0.0, 0.0, 0.0, 3.0)).quantile(0.5)
    assert found is not None
    assert (found.value, found.low, found.high) == (1.0, 1.0, math.inf)


def test_nothing_has_no_quantile_and_no_longest() -> None:
    empty = Histogram(BOUNDS, (0.0, 0.0, 0.0, 0.0))
    assert empty.quantile(0.5) is None
    assert empty.longest() is None
    assert empty.mean is None


def test_the_longest_lies_in_the_last_bucket_with_a_sample() -> None:
    longest = histogram([0.005, 0.05], BOUNDS).longest()
    assert longest is not None
    assert (longest.low, longest.high) == (0.01, 0.1)


@pytest.mark.parametrize(
    ("least", "expected"), [(0.05, (3, 0.1)), (0.1, (3, 0.1)), (0.5, (1, 1.0)), (2, (0, math.inf))]
)
def test_how_many_lie_above_a_bound(least: float, expected: tuple[int, float]) -> None:
    assert histogram([0.001, 0.05, 0.5, 0.6, 7.0], BOUNDS).above(least) == expected


def test_the_difference_of_two_looks() -> None:
    before, after = histogram([0.05], BOUNDS), histogram([0.05, 0.05, 0.5], BOUNDS)
    assert after.minus(before).counts == (0.0, 1.0, 1.0, 0.0)
    assert after.minus(before).sum == pytest.approx(0.55)


def test_sums_keep_the_bounds_that_both_have() -> None:
    one, other = Histogram((0.01, 0.1), (1.0, 2.0, 3.0)), Histogram((0.1, 1.0), (4.0, 5.0, 6.0))
    assert one.plus(other) == Histogram((0.1,), (7.0, 14.0))
    assert together([]) is None
    assert together([one, one]) == Histogram((0.01, 0.1), (2.0, 4.0, 6.0))
