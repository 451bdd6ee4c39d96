"""Exponential buckets, held against the formula of OpenTelemetry's data model."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.export.exponential import SCALE, ExponentialBuckets, ExponentialCounts, bucket_of

VALUES = st.floats(min_value=2e-6, max_value=2e9)


def bounds(number: int) -> tuple[float, float]:
    return 2 ** (number / 2**SCALE), 2 ** ((number + 1) / 2**SCALE)


def kept(*values: float) -> ExponentialCounts:
    buckets = ExponentialBuckets()
    buckets.observe_many(np.array(values, np.float64))
    return buckets.copy()


@given(VALUES)
def test_a_value_is_in_the_bucket_whose_bounds_it_lies_between(value: float) -> None:
    low, high = bounds(bucket_of(value))
    assert low < value * (1 + 1e-12)
    assert value <= high * (1 + 1e-12)


@pytest.mark.parametrize("power", range(-19, 31))
def test_the_upper_bound_belongs_to_the_bucket(power: int) -> None:
    value = 2.0**power
    assert bucket_of(value) == power * 2**SCALE - 1
    assert bucket_of(math.nextafter(value, math.inf)) == power * 2**SCALE
    assert kept(value).offset == bucket_of(value)


@given(st.lists(VALUES, min_size=1))
def test_many_at_once_go_where_each_would(values: list[float]) -> None:
    singly = ExponentialBuckets()
    for value in values:
        singly.observe(value)
    together, one_by_one = kept(*values), singly.copy()
    assert (together.offset, together.counts) == (one_by_one.offset, one_by_one.counts)
    assert together.total == pytest.approx(one_by_one.total)
    assert together.count == len(values)


def test_only_what_is_filled_is_copied() -> None:
    assert kept(0.021, 0.021, 0.9) == ExponentialCounts(bucket_of(0.021), [2, *[0] * 42, 1], 0, 0.021 + 0.021 + 0.9)
    assert kept() == ExponentialCounts(0, [], 0, 0.0)


def test_nothing_and_less_than_we_can_measure_count_as_zero() -> None:
    assert kept(0.0, 1e-9, -1e-9).zeros == 3
    buckets = ExponentialBuckets()
    for value in (0.0, 1e-9, -1e-9, math.inf, math.nan):
        buckets.observe(value)
    assert (buckets.copy().zeros, buckets.copy().count) == (3, 3)


def test_what_is_above_all_buckets_is_in_the_last() -> None:
    assert kept(2.0**31, 1e12, 1e300).counts == [3]


def test_several_of_one_value() -> None:
    buckets = ExponentialBuckets()
    buckets.observe(4.0, 5)
    assert buckets.copy() == ExponentialCounts(15, [5], 0, 20.0)
