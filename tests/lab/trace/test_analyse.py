"""All that is told of a trace, held against the truth of the trace."""

from __future__ import annotations

import functools
from collections import defaultdict
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from tests.lab.trace.gpu_trace import (
    ARTICLE,
    CHUNKS,
    COMBINE,
    CONV_DECODE,
    FLASH,
    FULL_LAYERS,
    GEMM,
    LINEAR_LAYERS,
    RECURRENT,
    GpuTrace,
    MadeStep,
    kernel,
    shuffled,
    text_of,
)
from tests.lab.trace.looked_at import findings_of

from prefillwatch.lab.trace.errors import TraceError
from prefillwatch.lab.trace.findings import Findings

MIXED = sum(step.prompt_tokens > 0 for step in ARTICLE)
DECODE = len(ARTICLE) - MIXED


@functools.cache
def article() -> Findings:
    return findings_of(GpuTrace())


def seconds_by_name() -> dict[str, float]:
    """From the events themselves."""
    seconds: dict[str, float] = defaultdict(float)
    for event in GpuTrace().events():
        if event["cat"] in ("kernel", "gpu_memcpy"):
            seconds[event["name"]] += event["dur"] / 1e6
    return seconds


def test_the_cadence_of_the_article() -> None:
    """A step every 39 ms while the prompt is taken in, every 22 ms before and after."""
    cadence = article().cadence
    assert cadence is not None
    assert cadence.steps == len(ARTICLE)
    assert (cadence.before.steps, cadence.during.steps, cadence.after.steps) == (12, 17, 24)
    medians = (cadence.before.median_seconds, cadence.during.median_seconds, cadence.after.median_seconds)
    assert medians == pytest.approx((0.022, 0.039, 0.022), abs=2e-6)


def test_the_prefill_is_where_it_was() -> None:
    (prefill,) = article().prefills
    assert article().main_prefill == 0
    assert prefill.start_seconds == pytest.approx(12 * 0.022, abs=1e-4)
    assert prefill.end_seconds == pytest.approx(12 * 0.022 + 17 * 0.039, abs=1e-4)
    assert (prefill.steps, prefill.prompt_tokens) == (17, 17 * 353)


def test_each_step_is_told_with_what_rode_in_it() -> None:
    for step, made in zip(article().steps, ARTICLE, strict=True):
        assert (step.prompt_tokens, step.answers, step.prefill) == (made.prompt_tokens, 4, made.prompt_tokens > 0)
        assert step.busy_ratio == pytest.approx(0.97, abs=0.005)
    assert [step.interval_seconds for step in article().steps[:-1]] == pytest.approx(
        [made.milliseconds / 1000 for made in ARTICLE[:-1]],
        abs=1e-5,  # the copy of the chosen tokens, with which the next step is taken to begin
    )
    assert article().steps[-1].interval_seconds is None


def test_the_two_kinds_of_layers() -> None:
    layers = article().layers
    assert (layers.full_attention, layers.linear_attention) == (FULL_LAYERS, LINEAR_LAYERS)
    seconds = seconds_by_name()
    assert layers.full_share.launches == 2 * FULL_LAYERS * len(ARTICLE)
    assert layers.full_share.seconds == pytest.approx(seconds[FLASH] + seconds[COMBINE], rel=1e-6)
    linear = sum(seconds[name] for name in (*CHUNKS, CONV_DECODE, RECURRENT))
    assert layers.linear_share.seconds == pytest.approx(linear, rel=1e-6)
    assert layers.linear_decode_share.launches == 2 * LINEAR_LAYERS * DECODE


def test_prompt_and_answer_kernels_are_told_apart_by_name() -> None:
    phases = article().phases
    assert phases.prefill.launches == MIXED * LINEAR_LAYERS * len(CHUNKS)
    assert phases.decode.launches == len(ARTICLE) * LINEAR_LAYERS * 2
    assert phases.both.launches == len(ARTICLE) * FULL_LAYERS * 2
    assert phases.prefill.seconds == pytest.approx(sum(seconds_by_name()[name] for name in CHUNKS), rel=1e-6)


def test_families_hold_every_kernel_once() -> None:
    families = article().families
    kernels = [event for event in GpuTrace().events() if event["cat"] in ("kernel", "gpu_memcpy")]
    assert sum(family.launches for family in families) == len(kernels) == article().kernels
    assert sum(family.seconds for family in families) == pytest.approx(sum(e["dur"] for e in kernels) / 1e6, rel=1e-6)
    for family in families:
        assert family.in_prefill_steps is not None
        assert family.in_decode_steps is not None
        assert family.in_prefill_steps.launches + family.in_decode_steps.launches == family.launches
        assert sum(family.kernels.values()) <= family.launches
    assert [family.seconds for family in families] == sorted((f.seconds for f in families), reverse=True)


def test_a_family_knows_in_which_steps_it_ran() -> None:
    by_name = {family.name: family for family in article().families}
    chunks = by_name["gated delta rule, prefill"]
    assert chunks.in_decode_steps is not None
    assert (chunks.launches, chunks.in_decode_steps.launches) == (MIXED * LINEAR_LAYERS, 0)
    recurrent = by_name["gated delta rule, decode"]
    assert recurrent.in_decode_steps is not None
    assert recurrent.in_decode_steps.launches == DECODE * LINEAR_LAYERS
    assert recurrent.kernels == {RECURRENT: len(ARTICLE) * LINEAR_LAYERS}


def test_decode_gaps_and_how_busy_the_gpu_was_in_the_widest() -> None:
    gaps = article().decode_gaps
    assert gaps is not None
    start, bounds = GpuTrace().start_us, (0.0, 12 * 22e3, 12 * 22e3 + 17 * 39e3, 1e12)
    by_hand = []
    for low, high in ((bounds[0], bounds[1]), (bounds[2], bounds[3])):
        inside = [e for e in GpuTrace().events() if e["name"] == RECURRENT and low <= e["ts"] - start < high]
        by_hand += [later["ts"] - earlier["ts"] - earlier["dur"] for earlier, later in pairwise(inside)]
    assert gaps.samples == len(by_hand)
    wanted = [np.percentile(by_hand, q) / 1e6 for q in (50, 90, 99, 100)]
    assert [gaps.p50_seconds, gaps.p90_seconds, gaps.p99_seconds, gaps.max_seconds] == pytest.approx(wanted, abs=5e-9)
    assert gaps.widest_busy_ratio == pytest.approx(0.97, abs=0.003)
    assert next(iter(gaps.widest_filled_by)) == "matrix product"
    assert sum(gaps.widest_filled_by.values()) <= gaps.max_seconds


def test_the_whole_span_and_how_busy_it_was() -> None:
    findings = article()
    assert findings.span_seconds == pytest.approx(36 * 0.022 + 17 * 0.039, abs=1e-4)
    assert findings.busy_ratio == pytest.approx(0.97, abs=0.001)
    assert (findings.source, findings.device, findings.other_devices, findings.notes) == ("gpu", "0", [], [])
    assert findings.vllm_version == "0.32.0"
    assert findings.start_microseconds == pytest.approx(GpuTrace().start_us, abs=0.002)


def test_the_order_of_the_events_does_not_matter() -> None:
    assert findings_of(shuffled(GpuTrace().events())) == article()


def test_a_bare_list_tells_the_same_but_the_version() -> None:
    listed = findings_of(msgspec.json.encode(list(GpuTrace().events())))
    assert listed.steps == article().steps
    assert listed.vllm_version is None


def test_the_longest_of_several_prefills_is_the_main_one() -> None:
    calm, short, long = MadeStep(20.0), MadeStep(30.0, 100), MadeStep(40.0, 512)
    findings = findings_of(GpuTrace([*[calm] * 4, short, *[calm] * 4, *[long] * 5, *[calm] * 4, short, *[calm] * 3]))
    assert [prefill.steps for prefill in findings.prefills] == [1, 5, 1]
    assert findings.main_prefill == 1
    assert findings.cadence is not None
    # Steps of the other prompts are in no part.
    assert (findings.cadence.before.steps, findings.cadence.during.steps, findings.cadence.after.steps) == (8, 5, 7)


@pytest.mark.parametrize("annotated", [True, False])
def test_a_short_prompt_that_only_took_long_for_tuning_is_not_the_main_one(annotated: bool) -> None:
    """The first requests of a server: 24 tokens, and seconds of kernels being tried out."""
    calm, first, long = MadeStep(22.0), MadeStep(9000.0, 24, 1, tries=900), MadeStep(222.0, 2044)
    findings = findings_of(GpuTrace([first, calm, calm, *[long] * 3, *[calm] * 9], annotated=annotated))
    assert findings.main_prefill == 1
    assert findings.cadence is not None
    assert findings.cadence.during.median_seconds == pytest.approx(0.222, abs=1e-4)


def test_a_trace_without_a_prompt_has_one_part() -> None:
    findings = findings_of(GpuTrace([MadeStep(20.0)] * 9))
    assert (findings.prefills, findings.main_prefill) == ([], None)
    assert findings.cadence is not None
    assert (findings.cadence.before.steps, findings.cadence.before.median_seconds) == (9, 0.02)
    assert findings.cadence.during.median_seconds is None


def test_kernels_without_attention_still_have_families() -> None:
    findings = findings_of([kernel(GEMM, at * 10.0, 5.0) for at in range(5)])
    assert findings.cadence is None
    assert [family.name for family in findings.families] == ["matrix products"]
    assert findings.notes == ["no steps: the engine noted none, and no attention kernel is known by name."]


def test_a_trace_that_was_cut_off_says_so_and_tells_what_came_before() -> None:
    text = text_of(GpuTrace().events())
    findings = findings_of(text[: len(text) // 2])
    assert findings.cadence is not None
    assert 20 < findings.cadence.steps < len(ARTICLE)
    assert "cut off" in findings.notes[0]


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b'{"traceEvents": []}',
        text_of([]),
        b'[{"ph": "X", "cat": "python_function", "name": "f", "ts": 1, "dur": 1}]',
        b'[{"ph": "X", "cat": "kernel", "name": "k", "ts": 1}]',
    ],
)
def test_a_trace_without_work_is_an_error_that_says_what_is_needed(text: bytes) -> None:
    with pytest.raises(TraceError, match="is a GPU kernel or a CPU op"):
        findings_of(text)


def test_a_single_kernel_is_a_trace() -> None:
    findings = findings_of(b'[{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1, "dur": 0}]')
    assert (findings.kernels, findings.span_seconds, findings.busy_ratio) == (1, 0.0, 0.0)


def test_it_all_goes_into_json_and_back() -> None:
    assert msgspec.json.decode(msgspec.json.encode(article()), type=Findings) == article()
