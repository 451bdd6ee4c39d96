"""Busy time, and the gaps between decode kernels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from tests.lab.trace.gpu_trace import RECURRENT, Event, GpuTrace, MadeStep, kernel
from tests.lab.trace.looked_at import work_of

from prefillwatch.lab.trace.gaps import Busy, decode_gaps
from prefillwatch.lab.trace.steps import find_steps


def test_overlapping_kernels_are_busy_once() -> None:
    busy = Busy.of(work_of([kernel("a", 0, 10), kernel("b", 5, 10, stream=20), kernel("c", 8, 2), kernel("d", 20, 5)]))
    assert (busy.starts.tolist(), busy.ends.tolist()) == ([0, 20_000], [15_000, 25_000])
    assert busy.share(0, 25_000) == 0.8


@pytest.mark.parametrize(
    ("start", "end", "share"),
    [
        (0, 10_000, 1.0),
        (12_000, 18_000, 0.5),
        (15_000, 20_000, 0.0),
        (-9000, 0, 0.0),
        (20_000, 30_000, 0.5),
        (5, 5, 0.0),
    ],
)
def test_share_of_any_stretch(start: int, end: int, share: float) -> None:
    busy = Busy.of(work_of([kernel("a", 0, 15), kernel("b", 20, 5)]))
    assert busy.share(start, end) == pytest.approx(share)


def test_nothing_is_never_busy() -> None:
    assert Busy.of(work_of([])).share(0, 100) == 0.0


STEPS = (*[MadeStep(22.0)] * 6, *[MadeStep(39.0, 500)] * 3, *[MadeStep(22.0)] * 5)


def gaps_by_hand(events: list[Event], stretches: list[tuple[float, float]]) -> list[float]:
    """Microseconds between decode kernels inside each stretch of time, from the events themselves."""
    gaps = []
    for start, end in stretches:
        inside = [event for event in events if event["name"] == RECURRENT and start <= event["ts"] < end]
        gaps += [later["ts"] - earlier["ts"] - earlier["dur"] for earlier, later in pairwise(inside)]
    return gaps


def test_gaps_are_those_inside_stretches_of_pure_decoding() -> None:
    trace = GpuTrace(STEPS)
    work = work_of(trace)
    cadence = find_steps(work)
    assert cadence is not None
    found = decode_gaps(work, cadence.steps)
    assert found is not None
    begin = trace.start_us
    wanted = gaps_by_hand(
        list(trace.events()), [(begin, begin + 6 * 22_000), (begin + 6 * 22_000 + 3 * 39_000, begin + 1e9)]
    )
    assert found.kernel == "gated delta rule, decode"
    assert len(found.gaps_ns) == len(wanted) == 6 * 24 - 1 + 5 * 24 - 1
    assert np.sort(found.gaps_ns) / 1000 == pytest.approx(sorted(wanted), abs=0.005)
    assert (found.widest_end_ns - found.widest_start_ns) / 1000 == pytest.approx(max(wanted), abs=0.005)


def test_the_widest_gap_is_where_the_hole_is() -> None:
    """Between two layers of step 9, 5 ms in which nothing runs."""

    def events() -> Iterator[Event]:
        hole_at = 5_134_147_559_064.919 + 9 * 22_000 + 11_000
        for event in GpuTrace([MadeStep(22.0)] * 12).events():
            late = 5000.0 if event["ts"] >= hole_at else 0.0
            yield event | {"ts": event["ts"] + late}

    work = work_of(events())
    cadence = find_steps(work)
    assert cadence is not None
    found = decode_gaps(work, cadence.steps)
    assert found is not None
    width = found.widest_end_ns - found.widest_start_ns
    assert 5.2e6 < width < 6.5e6
    assert Busy.of(work).share(found.widest_start_ns, found.widest_end_ns) == pytest.approx(1 - 5e6 / width, abs=0.02)


def test_without_pure_decoding_there_are_no_gaps() -> None:
    work = work_of(GpuTrace([MadeStep(39.0, 500)] * 6))
    cadence = find_steps(work)
    assert cadence is not None
    assert decode_gaps(work, cadence.steps) is None


def test_without_kernels_that_only_decode_those_of_attention_count() -> None:
    events = [e for e in GpuTrace(STEPS).events() if "recurrent" not in e["name"] and "chunk" not in e["name"]]
    work = work_of(events)
    cadence = find_steps(work)
    assert cadence is not None
    found = decode_gaps(work, cadence.steps)
    assert found is not None
    assert found.kernel == "FlashAttention"
    assert len(found.gaps_ns) == 6 * 8 - 1 + 5 * 8 - 1
