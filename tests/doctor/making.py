"""Histograms made of values."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from prefillwatch.contract.buckets import FIRST_TOKEN_BOUNDS, GAP_BOUNDS, PART_BOUNDS, PROMPT_TOKEN_BOUNDS
from prefillwatch.doctor.histogram import Histogram


def histogram(values: Iterable[float], bounds: tuple[float, ...]) -> Histogram:
    counts = [0.0] * (len(bounds) + 1)
    values = list(values)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    return Histogram(bounds, tuple(counts), sum(values))


def gaps(*groups: tuple[int, float]) -> Histogram:
    """So many gaps of so many seconds each."""
    return histogram((seconds for count, seconds in groups for _ in range(count)), GAP_BOUNDS)


def first_tokens(*groups: tuple[int, float]) -> Histogram:
    return histogram((seconds for count, seconds in groups for _ in range(count)), FIRST_TOKEN_BOUNDS)


def parts(*groups: tuple[int, float]) -> Histogram:
    return histogram((seconds for count, seconds in groups for _ in range(count)), PART_BOUNDS)


def prompts(*groups: tuple[int, int]) -> Histogram:
    return histogram((float(tokens) for count, tokens in groups for _ in range(count)), PROMPT_TOKEN_BOUNDS)
