"""Steps found again in traces whose steps are known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.lab.trace.gpu_trace import (
    ARTICLE,
    FLASH,
    FULL_LAYERS,
    GEMM,
    Event,
    GpuTrace,
    MadeStep,
    kernel,
    shuffled,
)
from tests.lab.trace.looked_at import work_of

from prefillwatch.lab.trace.steps import Cadence, find_steps, why_no_steps

# Between two layers of such a step lies more time (28 ms) than a whole step without a prompt takes.
LAYERS_FAR_APART = (*[MadeStep(22.0)] * 6, *[MadeStep(222.0, 2044)] * 3, *[MadeStep(22.0)] * 15)


def found(trace: GpuTrace | list[Event]) -> Cadence:
    cadence = find_steps(work_of(trace))
    assert cadence is not None
    return cadence


def intervals_ms(cadence: Cadence) -> list[float]:
    return [round(step.interval_ns / 1e6, 1) for step in cadence.steps if step.interval_ns is not None]


def prefills(cadence: Cadence) -> list[bool]:
    return [step.prefill for step in cadence.steps]


@pytest.mark.parametrize("steps", [ARTICLE, LAYERS_FAR_APART])
@pytest.mark.parametrize("annotated", [True, False])
def test_steps_are_cut_where_tokens_were_chosen(steps: tuple[MadeStep, ...], annotated: bool) -> None:
    cadence = found(GpuTrace(steps, annotated=annotated))
    assert (cadence.how, cadence.layers) == ("token choice", FULL_LAYERS)
    assert intervals_ms(cadence) == [step.milliseconds for step in steps[:-1]]
    assert prefills(cadence) == [step.prompt_tokens > 0 for step in steps]
    assert cadence.evidence == ("annotations" if annotated else "kernels")


@pytest.mark.parametrize("steps", [ARTICLE, LAYERS_FAR_APART])
def test_without_a_kernel_that_chooses_tokens_the_rhythm_tells(steps: tuple[MadeStep, ...]) -> None:
    cadence = found(GpuTrace(steps, annotated=False, chooses_tokens=False))
    assert (cadence.how, cadence.layers) == ("rhythm", FULL_LAYERS)
    assert len(cadence.steps) == len(steps)
    assert prefills(cadence) == [step.prompt_tokens > 0 for step in steps]
    # A step begins with its first attention layer here; where its length changes that shifts by a few layers.
    same = [at for at in range(len(steps) - 1) if steps[at] == steps[at + 1]]
    assert [intervals_ms(cadence)[at] for at in same] == [steps[at].milliseconds for at in same]


def test_all_annotated_steps_agree() -> None:
    cadence = found(GpuTrace())
    assert (cadence.annotated, cadence.agreeing) == (len(ARTICLE), len(ARTICLE))
    assert [step.prompt_tokens for step in cadence.steps] == [step.prompt_tokens for step in ARTICLE]
    assert {step.answers for step in cadence.steps} == {4}


def test_where_the_kernels_tell_something_else_vllm_is_believed() -> None:
    """Tokens that are chosen halfway through a step as well, by a draft model, say."""

    def events() -> Iterator[Event]:
        flashes = 0
        for event in GpuTrace(LAYERS_FAR_APART).events():
            yield event
            flashes += event["name"] == FLASH
            if event["name"] == FLASH and flashes % FULL_LAYERS == FULL_LAYERS // 2:
                yield kernel("_gumbel_sample_kernel", event["ts"] + event["dur"], 1.0)

    cadence = found(list(events()))
    assert cadence.how == "annotations"
    assert intervals_ms(cadence) == [step.milliseconds for step in LAYERS_FAR_APART[:-1]]
    assert cadence.agreeing < cadence.annotated == len(LAYERS_FAR_APART)


def test_annotations_of_the_cpu_alone_tell_tokens_by_order_not_by_time() -> None:
    """The CPU launches a step long before the GPU runs it."""
    events = [event for event in GpuTrace().events() if event["cat"] != "gpu_user_annotation"]
    cadence = found(events)
    assert cadence.how == "token choice"
    assert [step.prompt_tokens for step in cadence.steps] == [step.prompt_tokens for step in ARTICLE]


def test_the_order_of_the_file_does_not_matter() -> None:
    trace = GpuTrace(annotated=False)
    assert found(shuffled(trace.events())) == found(trace)


def test_a_trace_that_begins_and_ends_in_the_middle_of_a_step() -> None:
    kernels = [event for event in GpuTrace(annotated=False).events() if event["cat"] in ("kernel", "gpu_memcpy")]
    cadence = found(kernels[100:-100])
    assert intervals_ms(cadence)[1:] == [step.milliseconds for step in ARTICLE[1:-1]]
    assert cadence.layers == FULL_LAYERS
    assert cadence.steps[0].calls < FULL_LAYERS


def test_a_pause_between_two_steps_is_no_work() -> None:
    cadence = found(GpuTrace([MadeStep(20.0)] * 8, pause_after={3: 500.0}))
    assert intervals_ms(cadence) == [20.0, 20.0, 20.0, 520.0, 20.0, 20.0, 20.0]
    assert (cadence.steps[3].end_ns - cadence.steps[3].start_ns) / 1e6 == pytest.approx(20.0, abs=0.5)


def dense(milliseconds: float, start: float) -> Iterator[Event]:
    """A step of a model that has FlashAttention in every layer: no name tells prompts from answers."""
    slot = milliseconds * 1000 / 81
    for layer in range(20):
        for at, name in enumerate((GEMM, FLASH, GEMM, GEMM)):
            yield kernel(name, start + (4 * layer + at) * slot, slot * 0.97)
    yield kernel("_gumbel_sample_kernel", start + 80 * slot, slot * 0.97)


def dense_trace(lengths: list[float]) -> list[Event]:
    starts = [sum(lengths[:at]) * 1000 for at in range(len(lengths))]
    return [event for length, start in zip(lengths, starts, strict=True) for event in dense(length, start)]


def test_where_neither_names_nor_annotations_tell_long_steps_are_taken_for_prefill() -> None:
    cadence = found(dense_trace([10.0, 10.4, 9.8, 31.0, 33.0, 10.1, 10.2]))
    assert cadence.evidence == "length"
    assert prefills(cadence) == [False, False, False, True, True, False, False]


def test_steps_that_hardly_differ_are_not_told_apart_by_length() -> None:
    cadence = found(dense_trace([10.0, 10.4, 9.8, 12.0, 12.4, 10.1, 10.2]))
    assert cadence.evidence == "none"
    assert not any(prefills(cadence))


def test_a_backend_with_two_kernels_for_a_layer_counts_the_layer_once() -> None:
    """FlashInfer takes prompts and answers of one step in two kernels."""

    def events() -> Iterator[Event]:
        for event in GpuTrace(annotated=False).events():
            if event["name"] != FLASH:
                yield event
                continue
            half = event["dur"] / 2
            yield event | {"name": "flashinfer::BatchPrefillWithPagedKVCacheKernel", "dur": half}
            yield event | {
                "name": "flashinfer::BatchDecodeWithPagedKVCacheKernel",
                "dur": half,
                "ts": event["ts"] + half,
            }

    cadence = found(list(events()))
    assert cadence.layers == FULL_LAYERS
    assert len(cadence.steps) == len(ARTICLE)


def test_a_model_without_attention_over_a_cache_is_read_by_its_linear_layers() -> None:
    events = [event for event in GpuTrace(annotated=False).events() if "flash" not in event["name"]]
    cadence = found(events)
    assert cadence.layers == 24
    assert prefills(cadence) == [step.prompt_tokens > 0 for step in ARTICLE]


def test_a_router_that_chooses_experts_by_argmax_does_not_end_steps() -> None:
    def events() -> Iterator[Event]:
        for event in GpuTrace(annotated=False, chooses_tokens=False).events():
            yield event
            if event["name"] == FLASH:
                yield kernel("aten::argmax", event["ts"] + event["dur"], 1.0)

    cadence = found(list(events()))
    assert (cadence.how, cadence.layers, len(cadence.steps)) == ("rhythm", FULL_LAYERS, len(ARTICLE))


def test_of_a_backend_with_unknown_kernels_vllms_annotations_tell_the_steps() -> None:
    def renamed(event: Event) -> Event:
        return event | {"name": f"new_{len(event['name'])}"} if event.get("cat") == "kernel" else event

    cadence = found([renamed(event) for event in GpuTrace().events()])
    assert (cadence.how, cadence.layers, len(cadence.steps)) == ("annotations", 0, len(ARTICLE))
    assert sum(step.prompt_tokens or 0 for step in cadence.steps) == 6001


def test_kernels_without_attention_give_no_steps() -> None:
    assert find_steps(work_of([kernel(GEMM, at * 10.0, 5.0) for at in range(100)])) is None


def test_a_handful_of_attention_kernels_gives_no_steps() -> None:
    assert find_steps(work_of([kernel(FLASH, at * 10.0, 5.0) for at in range(5)])) is None


def test_attention_without_any_rhythm_gives_no_steps() -> None:
    assert (
        find_steps(work_of([kernel(FLASH, at * 10.0 + (at * at * 7919) % 97 / 20, 1.0) for at in range(200)])) is None
    )


# --- The engine's own account ---


def noted(name: str, start_us: float, length_us: float, *, gpu: bool = False) -> Event:
    place = (
        {"cat": "gpu_user_annotation", "pid": 0, "tid": 7} if gpu else {"cat": "user_annotation", "pid": 9, "tid": 9}
    )
    return {"ph": "X", "name": name, "ts": start_us, "dur": length_us, **place}


def two_kinds_of_layers(start_us: float, layers: int = 24, layer_us: float = 400.0, launch: int = 0) -> Iterator[Event]:
    """A step whose every second layer takes longer, without a kernel that chooses tokens."""
    now = start_us
    for layer in range(layers):
        for name, length in ((FLASH, 40.0), (GEMM, layer_us * (1 + layer % 2))):
            event = kernel(name, now, length)
            yield event | {"args": event["args"] | {"correlation": launch}} if launch else event
            now += length


def launched(correlation: int, start_us: float) -> Event:
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 9, "tid": 9, "ts": start_us, "dur": 5}
    return call | {"args": {"correlation": correlation}}


DETAILED = "execute_8192_context_9(sq8155sk8430sqsq747sqsk767)_generation_37(sq37sk34489sqsq37sqsk34489)"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("execute_context_1(888_788544)_generation_0(0)", (1, 888, 0)),
        (DETAILED, (9, 8155, 37)),
        ("step[EXTEND bs=15 toks=15360]", (15, 15360, 0)),
        ("step[DECODE bs=32]", (0, 0, 32)),
    ],
)
def test_one_annotated_step_is_one_step(name: str, told: tuple[int, int, int]) -> None:
    work = [noted(name, 1000.0, 15_400.0, gpu=True), *two_kinds_of_layers(1000.0)]
    cadence = found(work)
    (step,) = cadence.steps
    assert (step.prompts, step.prompt_tokens, step.answers) == told
    assert (step.calls, step.prefill, cadence.how) == (24, told[1] > 0, "annotations")


def test_annotations_that_lie_ahead_are_matched_by_what_was_launched_in_them() -> None:
    """By the clock each would belong to the step before; by a rhythm there would be three times as many."""
    events: list[Event] = []
    for at in range(12):
        long = at == 5
        start = 100_000.0 + 16_000 * at + 60_000 * (at > 5)
        name = DETAILED if long else "execute_context_0(0)_generation_8(8)"
        events += [noted(name, start - 16_000, 2000.0), launched(at + 1, start - 15_000)]
        events += two_kinds_of_layers(start, layer_us=2000.0 if long else 400.0, launch=at + 1)
    cadence = found(events)
    assert [step.prompt_tokens for step in cadence.steps] == [0] * 5 + [8155] + [0] * 6
    assert {step.calls for step in cadence.steps} == {24}
    assert cadence.how == "annotations"


def test_two_engines_annotations_around_each_other_are_one_step() -> None:
    work = [
        noted("execute_32_context_0(sq0sk0)_generation_32(sq32sk32785)", 0.0, 900.0),
        noted("step[DECODE bs=32]", 20.0, 800.0),
        launched(7, 100.0),
        *two_kinds_of_layers(50_000.0, launch=7),
    ]
    assert [(step.answers, step.calls) for step in found(work).steps] == [(32, 24)]


def test_where_nothing_matches_annotations_and_kernels_there_are_no_steps() -> None:
    """Neither launches nor as many steps: a rhythm of layers is none of steps."""
    events = [noted("execute_context_0(0)_generation_8(8)", 100.0 * at, 50.0) for at in range(10)]
    events += [event for at in range(10) for event in two_kinds_of_layers(50_000.0 + 16_000 * at)]
    work = work_of(events)
    assert find_steps(work) is None
    assert why_no_steps(work).startswith("the CPU noted 10 of them, ahead of the GPU, but neither launches nor")


def test_a_rhythm_of_layers_within_one_step_is_none_of_steps() -> None:
    work = work_of(two_kinds_of_layers(0.0, layers=48))
    assert find_steps(work) is None
    assert "nothing among the kernels between 48 calls of attention layers shows" in why_no_steps(work)


def test_too_few_calls_are_said_to_be() -> None:
    work = work_of([kernel(FLASH, at * 10.0, 5.0) for at in range(5)])
    assert why_no_steps(work) == "the engine noted none, and 5 calls of attention layers are too few for a rhythm"


def test_launches_that_lie_outside_of_annotations_move_nothing() -> None:
    events = [noted(DETAILED, 0.0, 50.0), launched(7, 400.0), *two_kinds_of_layers(50_000.0, launch=7)]
    assert not work_of(events).located
