"""How busy the device was, and how long a decode kernel waited for the next one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from prefillwatch.lab.trace.numbers import Numbers
from prefillwatch.lab.trace.steps import Flags, Step
from prefillwatch.lab.trace.timeline import Work


@dataclass(frozen=True, slots=True)
class Busy:
    """The time in which at least one kernel ran, on any stream: ordered spans that do not touch."""

    starts: Numbers
    ends: Numbers
    #: Busy nanoseconds before each span.
    _before: Numbers

    @classmethod
    def of(cls, work: Work) -> Busy:
        if not len(work):
            empty = np.zeros(0, np.int64)
            return cls(empty, empty, empty)
        latest = np.maximum.accumulate(work.ends)
        opens = np.r_[True, work.starts[1:] > latest[:-1]]
        starts = work.starts[opens]
        ends = np.r_[latest[np.flatnonzero(opens)[1:] - 1], latest[-1]]
        return cls(starts, ends, np.cumsum(ends - starts) - (ends - starts))

    def until(self, time_ns: int) -> int:
        """Busy nanoseconds up to that time."""
        at = int(np.searchsorted(self.starts, time_ns, side="right")) - 1
        if at < 0:
            return 0
        return int(self._before[at] + min(time_ns, int(self.ends[at])) - self.starts[at])

    def share(self, start_ns: int, end_ns: int) -> float:
        """The share of this time in which the device was busy; 0 for an empty time."""
        return (self.until(end_ns) - self.until(start_ns)) / (end_ns - start_ns) if end_ns > start_ns else 0.0


@dataclass(frozen=True, slots=True)
class DecodeGaps:
    """Silences between the end of a decode kernel and the start of the next, inside stretches of pure decode steps."""

    #: The family that was looked at.
    kernel: str
    gaps_ns: Numbers
    widest_start_ns: int
    widest_end_ns: int


def decode_gaps(work: Work, steps: list[Step]) -> DecodeGaps | None:
    """None where the trace has no stretch of pure decoding with two decode kernels in it."""
    rows, kernel = _decode_rows(work)
    stretch = _stretches(steps, work.starts[rows])
    rows, stretch = rows[stretch >= 0], stretch[stretch >= 0]
    if len(rows) < 2:
        return None
    ends = np.maximum.accumulate(work.ends[rows])[:-1]
    gaps = work.starts[rows][1:] - ends
    same = stretch[1:] == stretch[:-1]
    if not same.any():
        return None
    gaps = np.where(same, np.maximum(gaps, 0), -1)
    widest = int(gaps.argmax())
    return DecodeGaps(kernel, gaps[same], int(ends[widest]), int(ends[widest] + gaps[widest]))


def _decode_rows(work: Work) -> tuple[Numbers, str]:
    """Kernels of the layers that decode. In a step without a prompt, attention kernels do nothing else."""
    for kind in ("linear attention", "attention"):
        wanted = [f.kind == kind and f.layer_call and f.phase == "decode" for f in work.families]
        if work.mask(wanted).any():
            # Where one kind of layer has a kernel that only decodes, another may have one that serves both.
            flags = work.mask(f.kind == kind and f.layer_call and f.phase != "prefill" for f in work.families)
            return np.flatnonzero(flags), _name(work, flags)
    flags = work.mask(f.layer_call and f.phase != "prefill" for f in work.families)
    return np.flatnonzero(flags), _name(work, flags)


def _name(work: Work, flags: Flags) -> str:
    """The family that runs most often; among equals, the one that only decodes."""
    counts = Counter(work.families[name] for name in work.names[flags].tolist())
    most = max(counts, key=lambda family: (family.phase == "decode", counts[family], family.name), default=None)
    return most.name if most else ""


def _stretches(steps: list[Step], times: Numbers) -> Numbers:
    """For each time the number of the run of pure decode steps that it lies in, or -1."""
    run, runs = 0, []
    for before, step in zip([None, *steps], steps, strict=False):
        run += bool(before and before.prefill != step.prefill)
        runs.append(-1 if step.prefill else run)
    at = np.searchsorted([step.start_ns for step in steps], times, side="right") - 1
    numbers = np.array([*runs, -1], np.int64)
    return numbers[at]
