"""Throughput by concurrency, as timelines. Times are seconds, for reading."""

from __future__ import annotations

import pytest

from prefillwatch.analysis.tokens.concurrency import LEVEL_LABELS, ConcurrencyMeter, level
from prefillwatch.units import NS


def totals(meter: ConcurrencyMeter) -> dict[str, tuple[float, int, int]]:
    return {row.label: (row.seconds, row.tokens, row.requests) for row in meter.totals()}


def test_the_labels() -> None:
    assert " ".join(LEVEL_LABELS) == "0 1 2 3-4 5-8 9-16 17-32 33-64 65-128 129-256 257-512 513+"


@pytest.mark.parametrize("decoding", [*range(70), *range(120, 140), *range(250, 270), *range(500, 530), 10_000])
def test_the_level_is_the_one_whose_label_says_so(decoding: int) -> None:
    first, _, last = LEVEL_LABELS[level(decoding)].rstrip("+").partition("-")
    assert int(first) <= decoding
    assert decoding <= int(last or first) or decoding > 512


def test_less_than_nobody_is_nobody() -> None:
    assert level(-1) == 0


def test_a_morning() -> None:
    meter = ConcurrencyMeter()
    meter.change(100 * NS, 0)  # the first call only begins
    meter.change(110 * NS, 1)  # ten seconds of silence
    meter.tokens(1)
    meter.tokens(400)
    meter.change(120 * NS, 2)
    meter.tokens(300)
    meter.change(125 * NS, 3)
    meter.change(126 * NS, 4)  # the same level
    meter.tokens(180)
    meter.finished()
    meter.change(128 * NS, 3)
    meter.finished(3)
    meter.change(128 * NS, 0)
    meter.settle(130 * NS)
    assert totals(meter) == {"0": (12.0, 0, 0), "1": (10.0, 401, 0), "2": (5.0, 300, 0), "3-4": (3.0, 180, 4)}


def test_reading_in_the_middle_changes_nothing() -> None:
    plain, read = ConcurrencyMeter(), ConcurrencyMeter()
    for meter in (plain, read):
        meter.change(0, 7)
    for third in range(1, 30):
        read.settle(third * NS // 3)
    for meter in (plain, read):
        meter.change(10 * NS, 0)
    assert totals(plain) == totals(read) == {"5-8": (10.0, 0, 0)}


def test_all_levels_together_are_the_time_watched() -> None:
    meter = ConcurrencyMeter()
    meter.change(0, 0)
    for step in range(1, 2000):
        meter.change(step * 7_000_001, step * 37 % 600)
    assert sum(row.seconds for row in meter.totals()) == pytest.approx(1999 * 7_000_001 / 1e9)


def test_a_clock_that_steps_back_adds_nothing() -> None:
    meter = ConcurrencyMeter()
    meter.change(10 * NS, 1)
    meter.change(5 * NS, 2)
    meter.settle(12 * NS)
    assert totals(meter) == {"2": (2.0, 0, 0)}


def test_before_anything_happened_there_are_no_rows() -> None:
    assert list(ConcurrencyMeter().totals()) == []
