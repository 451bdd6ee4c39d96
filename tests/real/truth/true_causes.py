"""Why a stream truly stalled, from the engine's step log, the injected faults and the client's reads.

The definition of a stall of prefill is that of tests/judges/timeline.py, which scores recordings: most of the
gap went by in steps that carried prompts, these outweigh what was recomputed, and the steps took what such steps take.
"""

from __future__ import annotations

import bisect
import gzip
import itertools
import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tests.judges.timeline import Stall as EngineStall
from tests.judges.timeline import stalls_of
from tests.judges.truth import Seen, TrueStep, from_recording
from tests.real.truth.cores import DELIVERY_ROLES, ENGINE_ROLES, CoreWaits
from tests.real.truth.slow_reader import CHOICES

from prefillwatch.units import MS

#: The engine went on and so did its API server, yet the client read late: something on this machine held it up.
DELIVERY = "delivery"
#: One of the processes on the way waited for a core for half of the gap.
STARVED = "starved"
#: A long step without prompts or recomputation, and no fault of ours in it.
UNEXPLAINED = "unexplained"
#: What the machine did to the test says nothing about verdicts.
DISCARDED = frozenset({DELIVERY, STARVED})

BY_FAULT = {
    "engine_stopped": "engine_pause",
    "api_server_stopped": "frontend",
    "client_slow": "client",
    "hop_buffered": "buffering",
}


@dataclass(frozen=True, slots=True)
class TrueStall:
    """`tokens`: prompt tokens by request in the engine's steps of the gap. Times as in the recording."""

    stream: str
    start_ns: int
    end_ns: int
    excess_ns: float
    cause: str
    tokens: dict[str, int] = field(default_factory=dict)


@dataclass
class Truth:
    """A recording, read."""

    header: dict[str, Any]
    lines: list[dict[str, Any]]
    seen: Seen
    stalls: list[TrueStall]

    def kind(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == name]

    def cores(self) -> CoreWaits:
        return CoreWaits(self.kind("cores"))


def read_truth(recording: Path) -> Truth:
    with gzip.open(recording, "rt", encoding="utf-8") as file:
        header, *lines = map(json.loads, file)
    seen = from_recording(recording)
    truth = Truth(header, lines, seen, [])
    truth.stalls = list(_stalls(truth))
    return truth


def _stalls(truth: Truth) -> Iterable[TrueStall]:
    seen, judge = truth.seen, _Judge(truth)
    clear_ns = round(median(step.end_ns - step.start_ns for step in seen.steps if not step.prefill))
    for stream, reads in seen.reads.items():
        alone = Seen(seen.prompts, {stream: reads}, seen.closed, seen.steps)
        for stall in stalls_of(alone, clear_ns):
            cause = judge.cause(stall)
            tokens = stall.truth if cause == "prefill" else {}
            yield TrueStall(stream, stall.start_ns, stall.end_ns, stall.excess_ns, cause, tokens)
    yield from _of_slow_readers(truth)


def _of_slow_readers(truth: Truth) -> Iterable[TrueStall]:
    """Their reads are not in the recording: what they did to themselves is known, when exactly their buffers were full
    is not."""
    for fault in truth.kind("fault"):
        if fault["what"] == "client_slow":
            length_ns = fault["until"] - fault["at"]
            for choice in range(CHOICES):
                yield TrueStall(f"slow {choice}", fault["at"], fault["until"], length_ns / 2, "client")


class _Judge:
    def __init__(self, truth: Truth) -> None:
        self.seen = truth.seen
        self.faults = [(line["at"], line["until"], BY_FAULT[line["what"]]) for line in truth.kind("fault")]
        self.late = [(line["at"], line["until"]) for line in truth.kind("late")]
        self.cores = truth.cores()
        self.taken_in: list[int] = [line["at"] for line in truth.kind("iteration")]
        self.preempted: dict[str, list[int]] = defaultdict(list)
        for line in truth.kind("step"):
            for stream in line["preempted"]:
                self.preempted[stream].append(line["scheduled"])

    def cause(self, stall: EngineStall) -> str:
        if (fault := self._fault(stall)) is not None:
            return fault
        if stall.is_prefill:
            return "prefill"
        if self._recomputed(stall):
            return "preemption"
        half_ns = (stall.end_ns - stall.start_ns) / 2
        if self._longest_step_ns(stall) > half_ns:
            # Steps with prompts may be slow for want of a core, and are what they are; for others that is the reason.
            return STARVED if self._waited_ns(stall, ENGINE_ROLES) > half_ns else UNEXPLAINED
        if self._waited_ns(stall, DELIVERY_ROLES) > half_ns or self._late_ns(stall) > half_ns:
            return STARVED
        return "frontend" if self._taken_in_late(stall.start_ns, stall.end_ns) else DELIVERY

    def _fault(self, stall: EngineStall) -> str | None:
        half_ns = (stall.end_ns - stall.start_ns) / 2
        for since_ns, until_ns, cause in self.faults:
            # A slow reader holds up nobody but itself, and its reads are not among these.
            if cause == "client" or min(until_ns, stall.end_ns) - max(since_ns, stall.start_ns) <= half_ns:
                continue
            if cause != "buffering" or self._longest_step_ns(stall) <= half_ns:
                return cause
        return None

    def _waited_ns(self, stall: EngineStall, roles: Collection[str]) -> int:
        return self.cores.longest_ns(stall.start_ns, stall.end_ns, roles)

    def _late_ns(self, stall: EngineStall) -> int:
        """In which the test itself did not run."""
        return sum(max(0, min(until, stall.end_ns) - max(at, stall.start_ns)) for at, until in self.late)

    def _longest_step_ns(self, stall: EngineStall) -> int:
        steps = self._steps(stall)
        return max((step.end_ns - step.start_ns for step in steps), default=0)

    def _steps(self, stall: EngineStall) -> list[TrueStep]:
        return [step for step in self.seen.steps if stall.start_ns < step.end_ns and step.start_ns < stall.end_ns]

    def _recomputed(self, stall: EngineStall) -> bool:
        # A step that ends with the gap is delivered within it; what was thrown out may have been so just before.
        out = any(stall.start_ns - 50 * MS < at_ns < stall.end_ns for at_ns in self.preempted[stall.rid])
        return out or bool(sum(step.recomputed for step in self._steps(stall)))

    def _taken_in_late(self, start_ns: int, end_ns: int) -> bool:
        """Whether the API server took in no step for half of the gap."""
        low, high = bisect.bisect_left(self.taken_in, start_ns), bisect.bisect_right(self.taken_in, end_ns)
        times = [start_ns, *self.taken_in[low:high], end_ns]
        return max(later - earlier for earlier, later in itertools.pairwise(times)) > (end_ns - start_ns) / 2
