"""Traces of engines that others published: steps by the file's own account, and none where there is none."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.foreign.files.located import file

from prefillwatch.lab.trace.analyse import analyse, read_file
from prefillwatch.lab.trace.findings import Findings
from prefillwatch.lab.trace.reading import TraceReader
from prefillwatch.lab.trace.terminal import report

Event = dict[str, Any]


def findings(name: str) -> Findings:
    return read_file(file(name))[0]


@pytest.mark.parametrize(
    ("name", "told", "layers", "kernels"),
    [
        ("traces/vllm_b200_eager.json.gz", (1, 888, 0), 36, 929),
        ("traces/vllm_pd_piecewise.json.gz", (9, 8155, 37), 24, 423),
        ("traces/vllm_decode_full.json.gz", (0, 0, 32), 24, 434),
        ("traces/sglang_pd.json.gz", (15, 15_360, 0), 36, 534),
        ("traces/sglang_decode.json.gz", (0, 0, 32), 36, 558),
        ("made/one_step_only.json", (1, 888, 0), 36, 72),
        ("made/one_step_two_kinds_of_layers.json", (9, 8155, 37), 24, 48),
    ],
)
def test_one_step_with_what_the_engine_says_of_it(
    name: str, told: tuple[int, int, int], layers: int, kernels: int
) -> None:
    seen = findings(name)
    (step,) = seen.steps
    assert (step.prompts, step.prompt_tokens, step.answers) == told
    assert (seen.layers.full_attention, seen.kernels) == (layers, kernels)
    assert not any("no steps" in note for note in seen.notes)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("vllm_pd_capture", "no attention kernel is known by name"),
        ("h100_qwen", "nothing among the kernels between 34 calls of attention layers shows"),
        ("mi300_qwen", "nothing among the kernels between 35 calls of attention layers shows"),
    ],
)
def test_without_an_engine_there_are_no_steps_and_the_reason_is_true(name: str, why: str) -> None:
    seen = findings(f"traces/{name}.json.gz")
    assert not seen.steps
    assert any(note.startswith("no steps: the engine noted none") and why in note for note in seen.notes)
    assert "in decode steps" not in report(seen)


def test_nine_prompts_are_not_one() -> None:
    said = report(findings("traces/vllm_pd_piecewise.json.gz"))
    assert "with 9 prompts of 8,155 tokens and 37 answers" in " ".join(said.split())


@pytest.mark.parametrize(
    ("name", "most"), [("vllm_b200_eager", 0.0), ("vllm_decode_full", 0.01), ("mi300_qwen", 0.0), ("sglang_pd", 0.01)]
)
def test_hardly_any_kernel_is_of_no_family(name: str, most: float) -> None:
    families = findings(f"traces/{name}.json.gz").families
    unknown = sum(family.seconds for family in families if family.name == "other")
    assert unknown <= most * sum(family.seconds for family in families)


def test_gaps_between_decode_kernels_are_those_of_every_layer() -> None:
    gaps = findings("traces/vllm_decode_full.json.gz").decode_gaps
    assert gaps is not None
    assert gaps.samples == 23


def test_annotations_one_step_ahead_are_matched_by_order() -> None:
    seen = findings("made/cpu_annotations_one_step_ahead.json")
    assert [step.prompt_tokens for step in seen.steps] == [0] * 4 + [8155] + [0] * 4
    assert "14.1 times as long" in " ".join(report(seen).split())


@functools.cache
def events_of(name: str) -> tuple[Event, ...]:
    whole = json.loads(gzip.decompress(file(f"traces/{name}.json.gz").read_bytes()))
    return tuple(event for event in whole["traceEvents"] if event.get("cat") in KEPT)


AHEAD_US = 40_000
KEPT = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "user_annotation")
WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def strung(*, launches: bool, sampler: bool) -> Iterator[Event]:
    """Twenty decode steps, the mixed one and twenty more, each behind the other on the GPU; the CPU is four ahead."""
    at_us = 1e9
    for number in range(41):
        events = events_of("vllm_pd_piecewise" if number == 20 else "vllm_decode_full")
        work = [event for event in events if event["cat"] in WORK]
        first = min(event["ts"] for event in work)
        last = max(event["ts"] + event["dur"] for event in work)
        noted = min(event["ts"] for event in events if event["cat"] == "user_annotation")
        for event in events:
            clock = at_us - first if event["cat"] in WORK else at_us - AHEAD_US - noted
            moved = event | {"ts": event["ts"] + clock}
            correlation = event.get("args", {}).get("correlation")
            if launches and correlation is not None:
                moved["args"] = {"correlation": correlation + 10_000_000 * (number + 1)}
            elif event["cat"] not in ("user_annotation", *WORK):
                continue
            else:
                moved["args"] = {}
            yield moved
        at_us += last - first + 50
        if sampler:
            args: Event = {"correlation": 0}
            place = {"pid": work[0]["pid"], "tid": work[0]["tid"], "args": args}
            yield {"ph": "X", "cat": "kernel", "name": "argmax_kernel", "ts": at_us - 40, "dur": 20.0, **place}


def seen_of(events: Iterator[Event]) -> Findings:
    text = json.dumps({"traceEvents": list(events)}).encode()
    return analyse("strung.json", TraceReader([text]))


@pytest.mark.parametrize(("launches", "sampler"), [(True, False), (True, True), (False, True)])
def test_many_steps_in_a_row(launches: bool, sampler: bool) -> None:
    seen = seen_of(strung(launches=launches, sampler=sampler))
    assert [step.prompt_tokens for step in seen.steps] == [0] * 20 + [8155] + [0] * 20
    assert [step.prompts for step in seen.steps][20] == 9


def test_with_neither_launches_nor_a_sampler_no_steps_are_invented() -> None:
    seen = seen_of(strung(launches=False, sampler=False))
    assert not seen.steps
    assert any(note.startswith("no steps: the CPU noted 41 of them, ahead of the GPU") for note in seen.notes)
