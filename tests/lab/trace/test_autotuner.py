"""Kernels that were tried out are no work of the model."""

from __future__ import annotations

import pytest
from tests.lab.trace.gpu_trace import CHUNKS, FILL, GEMM, GpuTrace, MadeStep, kernel
from tests.lab.trace.looked_at import findings_of, work_of

from prefillwatch.lab.trace.autotuner import FEWEST_REPEATS, tuning_launches

TRIES = 500
CALM = (*[MadeStep(22.0)] * 5, *[MadeStep(200.0, 2000)] * 3, *[MadeStep(22.0)] * 8)
TUNED = (*CALM[:5], MadeStep(2200.0, 2000, tries=TRIES), *CALM[5:])


def test_the_same_kernel_over_and_over_is_tried_out() -> None:
    tries = [
        event
        for at in range(100)
        for event in (kernel(FILL, at * 20, 9), kernel("chunk_fwd_kernel_o", at * 20 + 10, 9))
    ]
    work = work_of([*tries, kernel(GEMM, 2000, 9)])
    flags = tuning_launches(work)
    # The last launch is the one whose result the model uses, the first fill came before anything was tried.
    assert flags.tolist() == [False, *[True] * 198, False, False]


def test_a_few_in_a_row_are_not() -> None:
    events = [kernel(GEMM, at * 10, 9) for at in range(FEWEST_REPEATS - 1)]
    assert not tuning_launches(work_of([*events, kernel("chunk_fwd_kernel_o", 1000, 9)])).any()


def test_copies_in_a_row_are_not() -> None:
    assert not tuning_launches(work_of([kernel(FILL, at * 10, 9) for at in range(100)])).any()


def test_ops_of_a_cpu_are_never_tried_out() -> None:
    events = [kernel("aten::mm", at * 10, 9) | {"cat": "cpu_op"} for at in range(100)]
    assert not tuning_launches(work_of(events)).any()


def test_a_trace_without_it_has_none() -> None:
    assert findings_of(GpuTrace(CALM)).tuning is None


def test_tries_are_told_apart_and_left_out() -> None:
    tuned, calm = findings_of(GpuTrace(TUNED)), findings_of(GpuTrace(CALM))
    assert tuned.tuning is not None
    # The first launch of all runs is the model's own; the tries follow it, each with a fill before it.
    assert (tuned.tuning.launches, tuned.tuning.steps) == (2 * TRIES, 1)
    assert tuned.tuning.kernels == ["chunk_fwd_kernel_o"]
    one_step_more = 24 * len(CHUNKS)
    assert tuned.phases.prefill.launches == calm.phases.prefill.launches + one_step_more


def test_the_step_they_ran_in_does_not_count_for_the_cadence() -> None:
    cadence = findings_of(GpuTrace(TUNED)).cadence
    assert cadence is not None
    assert cadence.during.steps == 4
    assert cadence.during.median_seconds == 0.2
    assert cadence.during.max_seconds == pytest.approx(0.2, abs=1e-4)


def test_where_there_is_no_other_step_it_has_to_count() -> None:
    steps = (*[MadeStep(22.0)] * 5, MadeStep(2200.0, 2000, tries=TRIES), *[MadeStep(22.0)] * 5)
    findings = findings_of(GpuTrace(steps))
    assert findings.cadence is not None
    assert findings.cadence.during.median_seconds == pytest.approx(2.2, abs=1e-4)
    assert any("tried out" in note for note in findings.notes)
