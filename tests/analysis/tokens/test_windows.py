"""Sliding windows, held against the values themselves."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefillwatch.analysis.tokens.windows import LogBuckets, SlidingWindows, quantile_rank
from prefillwatch.units import NS

PROMISED = 0.01

quantiles = st.one_of(st.sampled_from([0.5, 0.9, 0.99, 0.999, 1.0]), st.floats(0.001, 1.0))


def exact(values: npt.ArrayLike, q: float) -> float:
    """The definition, by the letter: the smallest value whose rank is at least q * n."""
    ordered = np.sort(values)
    ranks = np.arange(1, len(ordered) + 1)
    return float(ordered[np.argmax(ranks >= q * len(ordered) * (1 - 1e-12))])


def sample(kind: str, size: int, seed: int) -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    values: dict[str, Callable[[], npt.NDArray[np.float64]]] = {
        "decode steps": lambda: rng.normal(0.021, 0.002, size),
        "lognormal": lambda: rng.lognormal(-4, 1.5, size),
        "uniform in log": lambda: np.exp(rng.uniform(math.log(10e-6), math.log(3600), size)),
        "pareto tail": lambda: 0.003 * (1 + rng.pareto(1.1, size)),
        "rare freezes": lambda: np.where(rng.random(size) < 0.004, rng.uniform(0.3, 77, size), 0.0033),
        "constant": lambda: np.full(size, 0.0105),
    }
    return np.clip(values[kind](), 10e-6, 3600.0)


KINDS = ["decode steps", "lognormal", "uniform in log", "pareto tail", "rare freezes", "constant"]


@pytest.mark.parametrize("kind", KINDS)
@given(size=st.integers(1, 3000), seed=st.integers(0, 2**32 - 1), q=quantiles)
@settings(max_examples=30, deadline=None)
def test_any_quantile_is_within_one_percent(kind: str, size: int, seed: int, q: float) -> None:
    values = sample(kind, size, seed)
    windows = SlidingWindows()
    windows.add_many(values, 0)
    assert windows.quantile(q, 10) == pytest.approx(exact(values, q), rel=PROMISED)
    assert windows.maximum(10) == values.max()
    assert windows.count(10) == size


@given(st.lists(st.floats(10e-6, 3600.0), min_size=1, max_size=60), quantiles)
@settings(deadline=None)
def test_one_by_one_or_all_at_once(values: list[float], q: float) -> None:
    single, batch = SlidingWindows(), SlidingWindows()
    for value in values:
        single.add(value, 0)
    batch.add_many(np.array(values), 0)
    for windows in (single, batch):
        assert windows.quantile(q, 10) == pytest.approx(exact(values, q), rel=PROMISED)
        assert windows.maximum(10) == max(values)


@given(
    st.lists(st.tuples(st.integers(0, 8 * NS), st.lists(st.floats(1e-3, 100.0), max_size=5)), min_size=1, max_size=60),
    quantiles,
)
@settings(deadline=None)
def test_every_window_slides_like_a_list_of_timed_values(steps: list[tuple[int, list[float]]], q: float) -> None:
    """Pauses of up to eight seconds between batches: whatever the timeline, each window holds just its seconds."""
    windows = SlidingWindows((3, 10, 60))
    history: deque[tuple[int, float]] = deque()
    now = 0
    for pause, values in steps:
        now += pause
        windows.add_many(np.array(values), now)
        history.extend((now // NS, value) for value in values)
        for window in (3, 10, 60):
            inside = [value for second, value in history if second > now // NS - window]
            assert windows.count(window) == len(inside)
            assert windows.maximum(window) == (max(inside) if inside else None)
            expected = pytest.approx(exact(inside, q), rel=PROMISED) if inside else None
            assert windows.quantile(q, window) == expected


def test_a_freeze_leaves_the_short_window_first() -> None:
    windows = SlidingWindows()
    windows.add(0.83, 0)
    windows.add_many(np.full(400, 0.021), 0)

    windows.advance(9 * NS + NS - 1)
    assert windows.maximum(10) == 0.83

    windows.advance(10 * NS)
    assert windows.count(10) == 0
    assert windows.maximum(10) is None
    assert windows.maximum(60) == 0.83

    windows.advance(60 * NS)
    assert windows.maximum(60) is None
    assert windows.maximum(300) == 0.83
    assert windows.quantile(0.99, 300) == pytest.approx(0.021, rel=PROMISED)

    windows.advance(300 * NS)
    assert windows.maximum(300) is None


def test_an_empty_window_has_no_figures() -> None:
    windows = SlidingWindows()
    windows.add_many(np.array([]), 5 * NS)
    assert windows.count(10) == 0
    assert windows.maximum(10) is None
    assert windows.quantile(0.5, 10) is None
    assert windows.quantiles((0.5, 0.99), 300) == [None, None]


def test_after_minutes_of_silence_only_what_is_new_counts() -> None:
    windows = SlidingWindows()
    for second in range(300):
        windows.add_many(np.full(50, 5.0), second * NS)
    windows.add(0.01, 3600 * NS)
    for window in windows.windows_s:
        assert windows.count(window) == 1
        assert windows.quantile(0.5, window) == 0.01


def test_one_freeze_in_a_thousand_tokens_moves_the_maximum_and_not_the_p99() -> None:
    windows = SlidingWindows()
    windows.add_many(np.array([0.021] * 999 + [2.0]), 0)
    assert windows.quantile(0.99, 10) == pytest.approx(0.021, rel=PROMISED)
    assert windows.quantile(0.9995, 10) == 2.0
    assert windows.maximum(10) == 2.0


def test_no_quantile_exceeds_the_maximum() -> None:
    windows = SlidingWindows()
    value = float(LogBuckets(10e-6, 3600.0).estimates[500]) * 0.992  # below its bucket's estimate
    windows.add_many(np.array([value, value, value * 1.0001]), 0)
    median, most = windows.quantile(0.5, 10), windows.maximum(10)
    assert median is not None
    assert most is not None
    assert median <= most


def test_values_beyond_the_range_stay_at_its_ends() -> None:
    windows = SlidingWindows()
    windows.add_many(np.array([0.0, -1.0, 1e-9, 1.0]), 0)
    assert windows.quantile(0.5, 10) == pytest.approx(10e-6, rel=PROMISED)

    late = SlidingWindows()
    late.add_many(np.array([1.0, 7200.0, 9000.0]), 0)
    assert late.quantile(0.3, 10) == pytest.approx(1.0, rel=PROMISED)
    assert late.quantile(0.6, 10) == 9000.0, "beyond the range the most is said, not the least"
    assert late.maximum(10) == 9000.0


def test_a_time_that_steps_back_is_taken_for_the_newest() -> None:
    windows = SlidingWindows()
    windows.advance(20 * NS)
    windows.add(2.0, 5 * NS)
    windows.advance(29 * NS)
    assert windows.count(10) == 1
    windows.advance(30 * NS)
    assert windows.count(10) == 0


def test_five_busy_minutes_take_bounded_memory() -> None:
    windows = SlidingWindows()
    rng = np.random.default_rng(1)

    def held() -> tuple[int, int]:
        slots = windows._windows[300].slots
        arrays = sum(slot.buckets.nbytes + slot.counts.nbytes + 300 for slot in slots)
        return len(slots), arrays + sum(w.counts.nbytes for w in windows._windows.values())

    for second in range(400):
        windows.add_many(rng.lognormal(-4, 0.5, 500), second * NS)
    slots, size = held()
    assert slots <= 300
    assert size < 1 << 20
    for second in range(400, 1000):
        windows.add_many(rng.lognormal(-4, 0.5, 500), second * NS)
    assert held()[0] <= 300
    assert held()[1] < 1.1 * size


def test_counts_come_back_to_zero_exactly() -> None:
    windows = SlidingWindows((2,))
    rng = np.random.default_rng(2)
    for second in range(50):
        windows.add_many(rng.lognormal(-4, 2, 100), second * NS)
    windows.advance(100 * NS)
    assert windows.count(2) == 0
    assert not windows._windows[2].counts.any()


def test_instances_of_one_range_share_their_buckets() -> None:
    one, two = SlidingWindows(), SlidingWindows((10,))
    assert one._buckets is two._buckets


@pytest.mark.parametrize(
    ("q", "n", "rank"),
    [
        (0.5, 1, 1),
        (0.5, 2, 1),
        (0.5, 3, 2),
        (0.99, 100, 99),
        (0.07, 100, 7),
        (0.99, 101, 100),
        (1.0, 7, 7),
        (0.0, 5, 1),
    ],
)
def test_rank(q: float, n: int, rank: int) -> None:
    assert quantile_rank(q, n) == rank


@pytest.mark.parametrize("windows_s", [(), (0,), (10, -1)])
def test_windows_that_make_no_sense_are_refused(windows_s: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="windows must be whole seconds of at least 1"):
        SlidingWindows(windows_s)


@pytest.mark.parametrize(("lowest", "highest"), [(0.0, 1.0), (2.0, 1.0)])
def test_a_range_that_makes_no_sense_is_refused(lowest: float, highest: float) -> None:
    with pytest.raises(ValueError, match="0 < lowest < highest"):
        LogBuckets(lowest, highest)


def test_a_range_too_wide_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 65536"):
        LogBuckets(1e-300, 1e300)
