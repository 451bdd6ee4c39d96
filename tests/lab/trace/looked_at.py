"""Short ways from made-up events to what is found in them."""

from __future__ import annotations

from collections.abc import Iterable

from tests.lab.trace.gpu_trace import Event, GpuTrace, text_of

from prefillwatch.lab.trace.analyse import analyse
from prefillwatch.lab.trace.findings import Findings
from prefillwatch.lab.trace.reading import TraceReader
from prefillwatch.lab.trace.timeline import TimelineBuilder, Work


def findings_of(trace: GpuTrace | Iterable[Event] | bytes) -> Findings:
    return analyse("made-up.json", TraceReader([_text(trace)]))


def work_of(trace: GpuTrace | Iterable[Event]) -> Work:
    builder = TimelineBuilder()
    for event in TraceReader([_text(trace)]):
        builder.add(event)
    return builder.finish()


def _text(trace: GpuTrace | Iterable[Event] | bytes) -> bytes:
    if isinstance(trace, bytes):
        return trace
    return text_of(trace.events() if isinstance(trace, GpuTrace) else trace)
