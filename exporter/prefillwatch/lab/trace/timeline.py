"""What is kept of a trace: when each kernel or op ran and its name, in flat arrays; and vLLM's own step annotations."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from prefillwatch.lab.trace.annotation import Annotation
from prefillwatch.lab.trace.families import Family, family_of
from prefillwatch.lab.trace.launches import Launches, moved_by_launches
from prefillwatch.lab.trace.numbers import Numbers
from prefillwatch.lab.trace.reading import Event

Source = Literal["gpu", "cpu"]

#: With the duration, or only the beginning; then its duration counts as unknown.
_SPANS: Final = ("X", "B")
_GPU_WORK: Final = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))
_ANNOTATIONS: Final = frozenset(("user_annotation", "gpu_user_annotation"))
_RUNTIME: Final = frozenset(("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver"))
#: execute_context_1(2044)_generation_4(4): requests and tokens; with details as execute_context_1(sq2044sk…)_….
#: In detail execute_8192_context_9(sq8155sk…)_generation_37(sq37sk…), with the tokens of the batch in front.
_STEP: Final = re.compile(
    r"execute_(?:\d{1,9}_)?context_(\d{1,9})\((?:sq)?(\d{1,9})[^)]*\)_generation_(\d{1,9})\((?:sq)?\d{1,9}[^)]*\)"
)
#: SGLang's: step[EXTEND bs=15 toks=15360] and step[DECODE bs=32].
_SGLANG_EXTEND: Final = re.compile(r"step\[EXTEND bs=(\d{1,9}) toks=(\d{1,9})\]")
_SGLANG_DECODE: Final = re.compile(r"step\[DECODE bs=(\d{1,9})\b")
#: More distinct names than any trace has; further ones count as one.
MOST_NAMES: Final = 50_000
_SLICE: Final = 1 << 16
_REST: Final = "(further kernels)"
#: Sixty years; no trace has such times, and sums of them still fit into 64 bits of nanoseconds.
_LONGEST_US: Final = 2e15
#: Annotations are a few per step; a file with more than this is no trace of vLLM.
_MOST_ANNOTATIONS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Work:
    """Kernels (or CPU ops) in order of time; row i of each array is one of them. Times are nanoseconds of the trace."""

    source: Source
    starts: Numbers
    ends: Numbers
    #: Its duration, on the CPU less that of the ops it called.
    own: Numbers
    #: Index into `texts` and `families`.
    names: npt.NDArray[np.int32]
    lanes: npt.NDArray[np.int32]
    texts: list[str]
    families: list[Family]
    annotations: list[Annotation]
    devices: list[str]
    #: The device that this is about; with several in one file, the busiest.
    device: str
    without_duration: int = 0
    #: Whether the annotations lie where the work does. Those of the CPU run ahead of the GPU, by milliseconds to more
    #: than a step, and are only moved there where launches tell what belongs to which.
    located: bool = True

    def __len__(self) -> int:
        return len(self.starts)

    def mask(self, wanted: Iterable[bool]) -> npt.NDArray[np.bool_]:
        """Which rows have a name for which `wanted`, given per name, is true."""
        flags: npt.NDArray[np.bool_] = np.fromiter(wanted, dtype=np.bool_, count=len(self.texts))
        chosen: npt.NDArray[np.bool_] = flags[self.names]
        return chosen


def _nanoseconds(event: Event) -> tuple[int, int] | None:
    """Start and duration; None where an event has none, or none that make sense."""
    if event.ts is None or event.dur is None or not 0 <= event.dur < _LONGEST_US or not abs(event.ts) < _LONGEST_US:
        return None
    return round(event.ts * 1000), round(event.dur * 1000)


@dataclass(slots=True)
class _Rows:
    starts: array[int] = field(default_factory=lambda: array("q"))
    durations: array[int] = field(default_factory=lambda: array("q"))
    names: array[int] = field(default_factory=lambda: array("i"))
    lanes: array[int] = field(default_factory=lambda: array("i"))
    correlations: array[int] = field(default_factory=lambda: array("q"))


class TimelineBuilder:
    """`add` every event, then `finish`. Keeps 32 bytes per kernel, 16 per launch, and nothing of Python functions."""

    def __init__(self) -> None:
        self._gpu = _Rows()
        self._cpu = _Rows()
        self._names: dict[str, int] = {}
        self._lanes: dict[tuple[int | str, int | str], int] = {}
        self._annotations: list[Annotation] = []
        self._launches = Launches()
        self._without_duration = 0

    def add(self, event: Event) -> None:
        if event.ph not in _SPANS:
            return
        if event.cat in _GPU_WORK:
            self._add_to(self._gpu, event)
        elif event.cat == "cpu_op":
            self._add_to(self._cpu, event)
        elif event.cat in _ANNOTATIONS:
            self._annotate(event)
        elif event.cat in _RUNTIME and event.correlation and (span := _nanoseconds(event)):
            self._launches.add(event.correlation, span[0])

    def _add_to(self, rows: _Rows, event: Event) -> None:
        span = _nanoseconds(event)
        if span is None:
            self._without_duration += 1
            return
        rows.starts.append(span[0])
        rows.durations.append(span[1])
        rows.names.append(self._name(event.name))
        if rows is self._gpu:
            rows.correlations.append(event.correlation)
        rows.lanes.append(self._lanes.setdefault((event.pid, event.tid), len(self._lanes)))

    def _name(self, text: str) -> int:
        known = self._names.get(text)
        if known is None:
            if len(self._names) >= MOST_NAMES:
                text = _REST
            known = self._names.setdefault(text, len(self._names))
        return known

    def _annotate(self, event: Event) -> None:
        counts = _counts(event.name)
        span = _nanoseconds(event)
        if not counts or span is None or len(self._annotations) >= _MOST_ANNOTATIONS:
            return
        prompts, prompt_tokens, answers = counts
        start, length = span
        on_gpu = event.cat.startswith("gpu")
        self._annotations.append(
            Annotation(start, start + length, prompts, prompt_tokens, answers, on_gpu, str(event.pid))
        )

    def finish(self) -> Work:
        """What was added, in order of time: the GPU's kernels if there are any, else the CPU's ops."""
        source: Source = "gpu" if len(self._gpu.starts) else "cpu"
        rows = self._gpu if source == "gpu" else self._cpu
        self._cpu = self._gpu = _Rows()
        starts, durations = np.array(rows.starts, np.int64), np.array(rows.durations, np.int64)
        names, lanes = np.array(rows.names, np.int32), np.array(rows.lanes, np.int32)
        # Of two that start together, the longer one is the outer one.
        order = np.lexsort((-durations, starts))
        starts, durations, names, lanes = starts[order], durations[order], names[order], lanes[order]
        correlations = np.array(rows.correlations, np.int64)
        correlations = correlations[order] if source == "gpu" else correlations
        lane_devices = np.array([str(pid) for pid, _ in self._lanes], dtype=object)
        devices, device = _busiest(lane_devices, lanes, durations)
        if len(devices) > 1:
            kept = lane_devices[lanes] == device
            starts, durations, names, lanes = starts[kept], durations[kept], names[kept], lanes[kept]
            correlations = correlations[kept] if source == "gpu" else correlations
        own = durations if source == "gpu" else _own_times(starts, durations, lanes)
        texts = list(self._names)
        annotations = self._steps(source, device)
        located = source == "cpu" or any(step.on_gpu for step in annotations)
        if annotations and not located:
            moved = moved_by_launches(annotations, self._launches, correlations, starts, starts + durations, lanes)
            annotations, located = (moved, True) if moved is not None else (annotations, False)
        return Work(
            source,
            starts,
            starts + durations,
            own,
            names,
            lanes,
            texts,
            [family_of(text) for text in texts],
            annotations,
            devices,
            device,
            self._without_duration,
            located,
        )

    def _steps(self, source: Source, device: str) -> list[Annotation]:
        """The engine's annotations, in order of time, as they lie on the device where it has them."""
        here = [step for step in self._annotations if step.on_gpu and step.place == device]
        chosen = here if source == "gpu" and here else [step for step in self._annotations if not step.on_gpu]
        return _merged(sorted(chosen, key=lambda step: step.start_ns))


def _counts(name: str) -> tuple[int, int, int] | None:
    """Prompts, their tokens and answers of a step, by the name of its annotation; None where it is none of a step."""
    if found := _STEP.match(name):
        return int(found[1]), int(found[2]), int(found[3])
    if found := _SGLANG_EXTEND.match(name):
        return int(found[1]), int(found[2]), 0
    if found := _SGLANG_DECODE.match(name):
        return 0, 0, int(found[1])
    return None


def _busiest(
    lane_devices: npt.NDArray[np.object_], lanes: npt.NDArray[np.int32], durations: Numbers
) -> tuple[list[str], str]:
    """The devices (on the CPU: processes) that did something, and the one that did most."""
    per_lane = np.bincount(lanes, weights=durations, minlength=len(lane_devices))
    busy: dict[str, float] = {}
    for lane in np.unique(lanes).tolist():
        name = lane_devices[lane]
        busy[name] = busy.get(name, 0.0) + float(per_lane[lane])
    return list(busy), max(busy, key=lambda name: busy[name], default="")


def _merged(steps: list[Annotation]) -> list[Annotation]:
    """One per step: on the GPU each stream that a step ran on has an annotation of its own."""
    merged: list[Annotation] = []
    for step in steps:
        last = merged[-1] if merged else None
        if last and last.counts == step.counts and step.start_ns < last.end_ns:
            merged[-1] = replace(last, end_ns=max(last.end_ns, step.end_ns))
        else:
            merged.append(step)
    return merged


def _own_times(starts: Numbers, durations: Numbers, lanes: npt.NDArray[np.int32]) -> Numbers:
    """Durations less those of the ops called within; ops of one thread nest."""
    callers = np.full(len(starts), -1, np.int64)
    open_ops: dict[int, list[tuple[int, int]]] = {}
    # In slices, since a list of numbers takes five times the memory of their array.
    for first in range(0, len(starts), _SLICE):
        part = slice(first, first + _SLICE)
        columns = zip(starts[part].tolist(), durations[part].tolist(), lanes[part].tolist(), strict=True)
        for row, (start, duration, lane) in enumerate(columns, first):
            stack = open_ops.setdefault(lane, [])
            while stack and stack[-1][1] <= start:
                stack.pop()
            if stack:
                callers[row] = stack[-1][0]
            stack.append((row, start + duration))
    own = durations.copy()
    called = callers >= 0
    np.subtract.at(own, callers[called], durations[called])
    shares: Numbers = np.maximum(own, 0)
    return shares
