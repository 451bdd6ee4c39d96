"""What is kept of a trace's events."""

from __future__ import annotations

from tests.lab.trace.gpu_trace import GpuTrace, MadeStep, kernel, shuffled, text_of

from prefillwatch.lab.trace.reading import Event, TraceReader
from prefillwatch.lab.trace.timeline import TimelineBuilder, Work


def built(*events: Event) -> Work:
    builder = TimelineBuilder()
    for event in events:
        builder.add(event)
    return builder.finish()


def op(name: str, ts: float, dur: float | None, tid: int = 1, pid: int = 9) -> Event:
    return Event(ph="X", cat="cpu_op", name=name, ts=ts, dur=dur, pid=pid, tid=tid)


def gpu(name: str, ts: float, dur: float, stream: int = 7, device: int = 0) -> Event:
    return Event(ph="X", cat="kernel", name=name, ts=ts, dur=dur, pid=device, tid=stream)


def names(work: Work) -> list[str]:
    return [work.texts[name] for name in work.names]


def test_kernels_come_in_order_of_time_whatever_the_order_of_the_file() -> None:
    work = built(gpu("c", 30, 1), gpu("a", 10, 1), gpu("b", 20, 1))
    assert names(work) == ["a", "b", "c"]
    assert work.starts.tolist() == [10_000, 20_000, 30_000]
    assert work.ends.tolist() == [11_000, 21_000, 31_000]


def test_nanoseconds_survive_the_clock_of_a_machine_that_runs_for_months() -> None:
    work = built(gpu("a", 5_134_147_559_064.919, 12.345))
    assert (work.ends[0] - work.starts[0], work.starts[0]) == (12_345, 5_134_147_559_064_919)


def test_with_kernels_of_a_gpu_the_ops_of_the_cpu_do_not_count() -> None:
    work = built(op("aten::mm", 0, 5), gpu("gemm", 9, 2), op("aten::mm", 5, 5))
    assert (work.source, names(work)) == ("gpu", ["gemm"])


def test_an_op_has_its_time_to_itself_less_that_of_the_ops_it_called() -> None:
    work = built(
        op("outer", 0, 100), op("inner", 10, 50), op("innermost", 20, 5), op("second", 70, 10), op("next", 100, 7)
    )
    assert dict(zip(names(work), work.own.tolist(), strict=True)) == {
        "outer": 40_000,
        "inner": 45_000,
        "innermost": 5_000,
        "second": 10_000,
        "next": 7_000,
    }


def test_of_ops_that_begin_together_the_longer_is_the_caller() -> None:
    work = built(op("inner", 0, 40), op("outer", 0, 100))
    assert dict(zip(names(work), work.own.tolist(), strict=True)) == {"outer": 60_000, "inner": 40_000}


def test_ops_of_two_threads_do_not_call_each_other() -> None:
    work = built(op("a", 0, 100, tid=1), op("b", 10, 20, tid=2))
    assert work.own.tolist() == [100_000, 20_000]


def test_of_two_devices_the_busiest_is_looked_at() -> None:
    work = built(gpu("a", 0, 5, device=0), gpu("b", 1, 50, device=1), gpu("c", 90, 5, device=0))
    assert (names(work), work.device, sorted(work.devices)) == (["b"], "1", ["0", "1"])


def test_streams_of_one_device_belong_together() -> None:
    work = built(gpu("a", 0, 5, stream=7), gpu("b", 1, 5, stream=20))
    assert names(work) == ["a", "b"]


def test_what_has_no_duration_or_no_time_is_counted_and_left_out() -> None:
    work = built(op("a", 0, None), op("b", 1, 2), Event(ph="X", cat="cpu_op", name="c", dur=1), op("d", 3, -1))
    assert (names(work), work.without_duration) == (["b"], 3)


def test_times_beyond_all_numbers_are_left_out_too() -> None:
    work = built(op("a", 1e300, 1), op("b", 1, 1e300), op("c", float("nan"), 1), op("d", 1, 2))
    assert (names(work), work.without_duration, len(work.lanes)) == (["d"], 3, 1)


def test_only_spans_count() -> None:
    work = built(Event(ph="B", cat="kernel", name="a", ts=0), Event(ph="M", name="process_name"))
    assert (len(work), work.without_duration) == (0, 1)


def test_so_many_names_are_kept_and_no_more() -> None:
    builder = TimelineBuilder()
    for number in range(60_000):
        builder.add(gpu(f"kernel_{number}", number, 1))
    work = builder.finish()
    assert len(work) == 60_000
    assert len(work.texts) == 50_001


def test_annotations_of_the_gpu_win_where_there_is_one() -> None:
    work = built(
        gpu("k", 0, 5),
        Event(ph="X", cat="user_annotation", name="execute_context_1(8)_generation_2(2)", ts=0, dur=3, pid=41, tid=41),
        Event(
            ph="X", cat="gpu_user_annotation", name="execute_context_1(8)_generation_2(2)", ts=5, dur=9, pid=0, tid=7
        ),
    )
    (step,) = work.annotations
    assert (step.start_ns, step.end_ns, step.counts, step.on_gpu) == (5_000, 14_000, (1, 8, 2), True)


def test_an_annotation_on_each_stream_is_one_step() -> None:
    def on(stream: int, ts: float, dur: float) -> Event:
        name = "execute_context_0(0)_generation_2(2)"
        return Event(ph="X", cat="gpu_user_annotation", name=name, ts=ts, dur=dur, pid=0, tid=stream)

    work = built(gpu("k", 0, 5), on(7, 0, 10), on(20, 2, 10), on(7, 20, 10))
    assert [(step.start_ns, step.end_ns) for step in work.annotations] == [(0, 12_000), (20_000, 30_000)]


def test_detailed_annotations_are_understood() -> None:
    name = "execute_context_2(sq300sk900sqsq1sqsk2)_generation_3(sq3sk99sqsq3sqsk99)"
    (step,) = built(op("a", 0, 1), Event(ph="X", cat="user_annotation", name=name, ts=0, dur=9)).annotations
    assert step.counts == (2, 300, 3)


def test_other_ranges_are_no_steps() -> None:
    event = Event(ph="X", cat="user_annotation", name="gpu_model_runner: forward", ts=0, dur=9)
    assert built(op("a", 0, 1), event).annotations == []


def test_a_generated_trace_has_its_kernels_in_any_order() -> None:
    trace = GpuTrace([MadeStep(20.0), MadeStep(30.0, 100)])
    ordered = built(*TraceReader([text_of(trace.events())]))
    mixed = built(*TraceReader([text_of(shuffled(trace.events()))]))
    assert names(ordered) == names(mixed)
    assert ordered.starts.tolist() == mixed.starts.tolist()
    assert len(ordered) == sum(event["cat"] in ("kernel", "gpu_memcpy") for event in trace.events())


def test_copies_and_fills_count_as_work() -> None:
    event = kernel("Memset (Device)", 0, 5)
    assert event["cat"] == "gpu_memset"
    assert len(built(Event(ph="X", cat="gpu_memset", name="Memset (Device)", ts=0, dur=5))) == 1
