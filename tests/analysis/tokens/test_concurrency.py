"""Throughput by concurrency, as timelines. Times are seconds, for reading."""

from __future__ import annotations

import numpy as np
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


def reads(meter: ConcurrencyMeter, *each: tuple[float, int]) -> None:
    """Times in seconds, with token events."""
    times, counts = zip(*each, strict=True)
    meter.tokens(np.array([round(at * NS) for at in times], np.int64), np.array(counts, np.int64))


def test_a_morning() -> None:
    meter = ConcurrencyMeter()
    meter.settle(100 * NS)  # the first call only begins
    meter.begun(110 * NS)  # ten seconds of silence
    reads(meter, (110, 1), (119.9, 400))
    meter.begun(120 * NS)
    reads(meter, (122, 300))
    meter.begun(125 * NS)
    meter.begun(126 * NS)  # the same level
    reads(meter, (127, 180))
    meter.finished(128 * NS)
    meter.ended(128 * NS, 4)
    meter.finished(128 * NS)
    meter.settle(130 * NS)
    assert totals(meter) == {"0": (12.0, 0, 0), "1": (10.0, 401, 0), "2": (5.0, 300, 0), "3-4": (3.0, 180, 2)}


def test_one_after_the_other_is_one_at_a_time_whenever_its_end_is_heard_of() -> None:
    """Fifty quick answers between two looks: all beginnings may be told before all ends."""
    meter = ConcurrencyMeter()
    meter.settle(0)
    for answer in range(50):
        meter.begun(answer * NS)
        reads(meter, (answer, 1), (answer + 0.5, 1), (answer + 0.9, 1))
    for answer in range(50):
        meter.ended(answer * NS + 9 * NS // 10)
        meter.finished(answer * NS + 9 * NS // 10)
    meter.settle(50 * NS)
    assert totals(meter) == {"0": (pytest.approx(5.0), 0, 0), "1": (pytest.approx(45.0), 150, 50)}


def test_settling_in_the_middle_changes_nothing() -> None:
    plain, often = ConcurrencyMeter(), ConcurrencyMeter()
    for meter in (plain, often):
        meter.begun(0, 7)
    for third in range(1, 30):
        often.settle(third * NS // 3)
    for meter in (plain, often):
        meter.ended(10 * NS, 7)
        meter.settle(10 * NS)
    assert totals(plain) == totals(often) == {"5-8": (10.0, 0, 0)}


def test_all_levels_together_are_the_time_watched() -> None:
    meter = ConcurrencyMeter()
    decoding = 0
    for step in range(2000):
        wanted = step * 37 % 600
        if wanted > decoding:
            meter.begun(step * 7_000_001, wanted - decoding)
        else:
            meter.ended(step * 7_000_001, decoding - wanted)
        decoding = wanted
        if not step % 100:
            meter.settle(step * 7_000_001)
    meter.settle(1999 * 7_000_001)
    assert sum(row.seconds for row in meter.totals()) == pytest.approx(1999 * 7_000_001 / 1e9)


def test_a_clock_that_steps_back_adds_nothing() -> None:
    meter = ConcurrencyMeter()
    meter.begun(10 * NS)
    meter.settle(10 * NS)
    meter.begun(5 * NS)
    meter.settle(6 * NS)
    meter.settle(12 * NS)
    assert totals(meter) == {"2": (2.0, 0, 0)}


def test_before_anything_happened_there_are_no_rows() -> None:
    assert list(ConcurrencyMeter().totals()) == []
