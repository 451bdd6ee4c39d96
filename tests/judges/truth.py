"""What a sidecar sees of an engine, and what the engine really did: from the simulator or from a recording of a real
vLLM."""

from __future__ import annotations

import bisect
import gzip
import json
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from prefillwatch.analysis.steps.heartbeat import Heartbeat
from prefillwatch.analysis.steps.timeline import PrefillTimeline, Split, StepFacts
from prefillwatch.lab.simulator import VirtualRun
from prefillwatch.units import MS

TICK_NS = 20 * MS


@dataclass
class TrueStep:
    start_ns: int
    end_ns: int
    prefill: dict[str, int]
    decode: int
    recomputed: int = 0
    paused_ns: int = 0


@dataclass
class Seen:
    """The wire: what was sent when, and every token read; and the truth behind it."""

    #: Request: sent, prompt tokens, uncached tokens.
    prompts: dict[str, tuple[int, int, int]]
    #: Request: read time and index of the step that made it, first token first.
    reads: dict[str, list[tuple[int, int]]]
    closed: dict[str, int]
    steps: list[TrueStep]
    #: False: only usage at the end of an answer tells what was cached.
    uncached_known: bool = True


def from_simulator(
    run: VirtualRun, seed: int = 1, api_ns: int = 3 * MS, tokenise_ns: int = 0, jitter: bool = True
) -> Seen:
    """Adds what lies between engine and sidecar: the API server's share, and a delivery that spreads after long
    steps."""
    rng = random.Random(seed)
    clear_ns = sorted(step.end_ns - step.start_ns for step in run.steps)[len(run.steps) // 4]
    reads: dict[str, list[tuple[int, int]]] = defaultdict(list)
    first: set[str] = set()
    for index, step in enumerate(run.steps):
        long = step.end_ns - step.start_ns > 1.5 * clear_ns
        spread_ns = min(10 * MS, clear_ns) if long else 1.5 * MS
        for rid in step.produced:
            late_ns = MS // 2 + round(rng.uniform(0, spread_ns)) if jitter else 0
            if rid not in first:
                first.add(rid)
                late_ns = MS // 2 + round(rng.uniform(0, 15 * MS if long else 5 * MS)) if jitter else 0
            at_ns = step.end_ns + late_ns
            if reads[rid]:
                at_ns = max(at_ns, reads[rid][-1][0] + 1000)
            if rid not in run.closed_ns or run.outcome.get(rid) != "abort" or at_ns <= run.closed_ns[rid]:
                reads[rid].append((at_ns, index))
    cached = {rid: tokens for step in run.steps for rid, tokens in step.admitted.items()}
    prompts = {
        rid: (
            sent_ns - api_ns - tokenise_ns * run.requests[rid].prompt_tokens,
            run.requests[rid].prompt_tokens,
            run.requests[rid].prompt_tokens - cached.get(rid, 0),
        )
        for rid, sent_ns in run.sent_ns.items()
    }
    closed = {
        rid: at_ns if run.outcome.get(rid) == "abort" else max(at_ns, reads[rid][-1][0]) + 200_000
        for rid, at_ns in run.closed_ns.items()
    }
    steps = [simulated_step(run, number) for number in range(len(run.steps))]
    return Seen(prompts, dict(reads), closed, steps)


def simulated_step(run: VirtualRun, number: int) -> TrueStep:
    """A prompt that is read again after its first token is recomputed."""
    step = run.steps[number]
    first = {rid: reads[0] for rid, reads in run.reads_ns.items() if reads}
    prefill = {rid: tokens for rid, tokens in step.prefill.items() if step.start_ns < first.get(rid, step.end_ns)}
    recomputed = sum(step.prefill.values()) - sum(prefill.values())
    return TrueStep(step.start_ns, step.end_ns, prefill, len(step.decode), recomputed, step.paused_ns)


def from_recording(path: Path) -> Seen:
    """A recording of a real vLLM (see tests/real/record_workload.py for the format)."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    steps = [recorded_step(line) for line in lines if line["kind"] == "step"]
    faults = [
        (line["at"], line["until"]) for line in lines if line["kind"] == "fault" and line["what"] == "engine_stopped"
    ]
    for step in steps:
        step.paused_ns = sum(max(0, min(step.end_ns, until) - max(step.start_ns, at)) for at, until in faults)
    makers = made_by(lines)
    sizes = recorded_sizes(lines)
    prompts: dict[str, tuple[int, int, int]] = {}
    reads: dict[str, list[tuple[int, int]]] = defaultdict(list)
    closed: dict[str, int] = {}
    for line in lines:
        if line["kind"] == "request":
            prompts[line["id"]] = (line["at"], *sizes[line["id"]])
        elif line["kind"] == "read" and line["tokens"]:
            reads[line["id"]].append((line["at"], last_before(makers[line["id"]], line["at"])))
        elif line["kind"] == "end":
            closed[line["id"]] = line["at"]
    return Seen(prompts, dict(reads), closed, steps)


def made_by(lines: list[dict[str, Any]]) -> dict[str, list[tuple[int, int]]]:
    """For every request the steps it was in, as (end, index)."""
    makers: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for index, line in enumerate(line for line in lines if line["kind"] == "step"):
        for rid, *_ in line["requests"]:
            makers[rid].append((line["done"], index))
    return makers


def last_before(makers: list[tuple[int, int]], at_ns: int) -> int:
    return makers[max(0, bisect.bisect_right(makers, (at_ns, len(makers))) - 1)][1]


def recorded_step(line: dict[str, Any]) -> TrueStep:
    prefill = {rid: tokens for rid, tokens, kind, _ in line["requests"] if kind == "p"}
    decode = sum(kind == "d" for _, _, kind, _ in line["requests"])
    recomputed = sum(tokens for _, tokens, kind, _ in line["requests"] if kind == "r")
    return TrueStep(line["scheduled"], line["done"], prefill, decode, recomputed)


def recorded_sizes(lines: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Prompt and uncached tokens by usage; where none came, by the ratio of characters to tokens of the others."""
    characters = {line["id"]: line["prompt_chars"] for line in lines if line["kind"] == "request"}
    usage = {line["id"]: line for line in lines if line["kind"] == "end" and line["prompt_tokens"]}
    ratio = sum(characters[rid] for rid in usage) / max(1, sum(line["prompt_tokens"] for line in usage.values())) or 5
    sizes = {rid: (max(1, round(length / ratio)),) * 2 for rid, length in characters.items()}
    for rid, line in usage.items():
        sizes[rid] = (line["prompt_tokens"], line["prompt_tokens"] - (line["cached_tokens"] or 0))
    return sizes


@dataclass
class Inferred:
    timeline: PrefillTimeline
    heartbeat: Heartbeat
    facts: list[StepFacts]
    splits: dict[str, Split]
    #: Largest prompt in service as far as known within a tick, by request and end of a gap of 100 ms and more.
    early: dict[tuple[str, int], int] = field(default_factory=dict)


def observe(
    seen: Seen, tick_ns: int = TICK_NS, each_tick: Callable[[int, PrefillTimeline], object] | None = None
) -> Inferred:
    """Feed everything as the ledger does, in ticks."""
    timeline = PrefillTimeline()
    heartbeat = Heartbeat(timeline.clear)
    events = wire_events(seen)
    slots = {rid: number for number, rid in enumerate(seen.prompts)}
    inferred = Inferred(timeline, heartbeat, [], {})
    last_read: dict[str, int] = {}
    gaps: list[tuple[str, int, int]] = []
    batch: list[tuple[int, int]] = []
    due_ns = events[0][0] + tick_ns
    for at_ns, what, rid in [*events, (events[-1][0] + 1000 * MS, "stop", "")]:
        while at_ns > due_ns:
            tell(timeline, heartbeat, batch, due_ns)
            batch.clear()
            inferred.facts += timeline.drain_final()
            inferred.splits |= {str(split.rid): split for split in timeline.drain_splits()}
            due_ns += tick_ns
            ask_early(inferred, gaps)
            if each_tick is not None:
                each_tick(due_ns - tick_ns, timeline)
        if what == "sent":
            _, tokens, uncached = seen.prompts[rid]
            timeline.sent(rid, at_ns, tokens, uncached if seen.uncached_known else None)
        elif what == "first":
            timeline.first_token(rid, at_ns)
            heartbeat.joined(slots[rid], at_ns)
            last_read[rid] = at_ns
        elif what == "read":
            batch.append((at_ns, slots[rid]))
            if at_ns - last_read[rid] >= 100 * MS:
                gaps.append((rid, last_read[rid], at_ns))
            last_read[rid] = at_ns
        elif what == "closed":
            heartbeat.left(slots[rid])
            _, tokens, uncached = seen.prompts[rid]
            timeline.sized(rid, tokens, uncached)
        elif what == "gone":
            timeline.gone(rid, at_ns)
    return inferred


def ask_early(inferred: Inferred, gaps: list[tuple[str, int, int]]) -> None:
    """Ask for the gaps whose step is closed, as the live windows do."""
    closed = [gap for gap in gaps if gap[2] <= inferred.heartbeat.closed_ns]
    if closed:
        starts, ends = (np.array([gap[column] for gap in closed], np.int64) for column in (1, 2))
        tokens = inferred.timeline.in_service(starts, ends).tokens.tolist()
        inferred.early |= {(rid, end_ns): its for (rid, _, end_ns), its in zip(closed, tokens, strict=True)}
        gaps[:] = [gap for gap in gaps if gap[2] > inferred.heartbeat.closed_ns]


def tell(timeline: PrefillTimeline, heartbeat: Heartbeat, batch: list[tuple[int, int]], now_ns: int) -> None:
    times = np.array([at_ns for at_ns, _ in batch], np.int64)
    slots = np.array([slot for _, slot in batch], np.int64)
    timeline.steps(heartbeat.feed(slots, times))
    timeline.steps(heartbeat.flush(now_ns))
    timeline.settle(now_ns)


def wire_events(seen: Seen) -> list[tuple[int, str, str]]:
    events = [(sent_ns, "sent", rid) for rid, (sent_ns, _, _) in seen.prompts.items()]
    for rid, reads in seen.reads.items():
        events += [(at_ns, "read" if number else "first", rid) for number, (at_ns, _) in enumerate(reads)]
    events += [(at_ns, "closed" if seen.reads.get(rid) else "gone", rid) for rid, at_ns in seen.closed.items()]
    order = {"sent": 0, "first": 1, "read": 1, "closed": 2, "gone": 2}
    return sorted(events, key=lambda event: (event[0], order[event[1]]))
