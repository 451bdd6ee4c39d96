"""A trace that vLLM wrote, held against what its text says to whoever reads it by hand."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from prefillwatch.lab.trace.analyse import read_file
from prefillwatch.lab.trace.findings import Findings

RECORDING = Path(__file__).parents[2] / "data" / "traces" / "cpu-llama-6-layers.pt.trace.json.gz"

#: Where vLLM's annotations begin, in microseconds, and the prompt tokens in their names.
ANNOTATED = (
    (5136361274044.380, 0),
    (5136361285695.476, 0),
    (5136361296750.426, 0),
    (5136361332774.793, 254),
    (5136361417791.970, 254),
    (5136361505014.181, 92),
    (5136361556523.619, 0),
    (5136361568299.329, 0),
    (5136361586177.404, 0),
    (5136361595525.519, 0),
)


@functools.cache
def recording() -> Findings:
    findings, reader = read_file(RECORDING)
    assert (reader.problem, reader.unreadable) == ("", 0)
    return findings


def test_what_it_is_a_trace_of() -> None:
    findings = recording()
    assert (findings.source, findings.vllm_version) == ("cpu", "0.32.0")
    assert findings.notes == []


def test_every_step_is_found_by_its_kernels_alone() -> None:
    cadence = recording().cadence
    assert cadence is not None
    assert cadence.cut_by == "token choice"
    assert cadence.steps == cadence.annotated_steps == cadence.agreeing_steps == len(ANNOTATED)
    assert recording().layers.full_attention == 6
    assert recording().layers.linear_attention == 0


def test_steps_come_when_vllm_says_they_do() -> None:
    begins = [recording().start_microseconds + step.start_seconds * 1e6 for step in recording().steps]
    # A step's annotation begins a moment before its first op, and after the ops that prepare it.
    assert begins == pytest.approx([begin for begin, _ in ANNOTATED], abs=2500)


def test_the_prompt_is_in_the_steps_that_carried_it() -> None:
    assert [step.prompt_tokens for step in recording().steps] == [tokens for _, tokens in ANNOTATED]
    (prefill,) = recording().prefills
    assert (prefill.steps, prefill.prompt_tokens) == (3, 600)


def test_the_beat_while_the_prompt_was_taken_in() -> None:
    """Between the annotations lie 85.0, 87.2 and 51.5 ms; before them 11.7, 11.1 and 36.0; after 11.8, 17.9 and 9.3."""
    cadence = recording().cadence
    assert cadence is not None
    medians = (cadence.before.median_seconds, cadence.during.median_seconds, cadence.after.median_seconds)
    assert medians == pytest.approx((0.0117, 0.0850, 0.0118), abs=0.0015)


def test_ops_are_counted_and_timed() -> None:
    by_kernel = {name: family for family in recording().families for name in family.kernels}
    attention = by_kernel["_C::cpu_attention_with_kv_cache"]
    assert (attention.kind, attention.launches) == ("attention", 60)
    assert by_kernel["_C::onednn_mm"].launches == 250
    assert by_kernel["_C::fused_gumbel_argmax"].launches == 10
    assert by_kernel["aten::embedding"].launches == 10
    assert sum(family.launches for family in recording().families) == 10978


def test_no_op_counts_twice() -> None:
    """Ops nest; their own times add up to no more than the busy time of their thread."""
    findings = recording()
    own = sum(family.seconds for family in findings.families)
    assert own == pytest.approx(findings.busy_ratio * findings.span_seconds, rel=0.001)
