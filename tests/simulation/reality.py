"""A recorded load of a real vLLM, and the same load on a simulated shape: the same requests at the same times.

What steps cost is fitted to the real engine's log, since machines differ; so what is compared is who is in which step,
and how tokens get from there to a reader.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from tests.judges.truth import recorded_sizes
from tests.simulation.delivery import deliver
from tests.simulation.engine import PLENTY, Job, Rank, Scheduling, Speed
from tests.simulation.faults import Hardships
from tests.simulation.shapes import Shape

RECORDINGS: Final = Path(__file__).parents[1] / "data" / "recordings"
MS: Final = 1e6
SHALLOWEST: Final = 500.0  # tokens in a context before those that come after cost twice as much
FEWEST: Final = 200  # prompt tokens of a step that says what a token costs


@dataclass(frozen=True)
class Reads:
    """What readers saw. ``gaps``: of all streams, between two reads with tokens, in milliseconds; ``fat``: share of
    reads that brought more than one token event; ``prompt_steps``: steps with prompts; ``full``: share of those that
    were as full as they may be; ``first_tokens``: from when a request was sent until then."""

    gaps: list[float] = field(repr=False)
    fat: float
    prompt_steps: int
    full: float
    first_tokens: list[float] = field(repr=False)

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.gaps, share))

    @property
    def long(self) -> list[float]:
        """Gaps of four usual ones and more."""
        least = 4 * self.quantile(0.5)
        return [gap for gap in self.gaps if gap >= least]

    @property
    def first_token(self) -> float:
        return float(np.median(self.first_tokens))


def recorded(name: str) -> list[dict[str, Any]]:
    with gzip.open(RECORDINGS / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def real(lines: list[dict[str, Any]]) -> Reads:
    budget = lines[0]["engine"]["max_num_batched_tokens"]
    reads: dict[str, list[tuple[float, int]]] = defaultdict(list)
    sent = {line["id"]: line["at"] / MS for line in lines if line["kind"] == "request"}
    for line in lines:
        if line["kind"] == "read" and line["tokens"]:
            reads[line["id"]].append((line["at"] / MS, line["tokens"]))
    steps = [line["requests"] for line in lines if line["kind"] == "step"]
    prompts = [sum(tokens for _, tokens, _, _ in step) for step in steps if any(kind == "p" for _, _, kind, _ in step)]
    return _reads(reads, sent, prompts, budget)


def scheduling_of(lines: list[dict[str, Any]]) -> Scheduling:
    engine = lines[0]["engine"]
    preempts = any(line["preempted"] for line in lines if line["kind"] == "step")
    return Scheduling(
        budget=engine["max_num_batched_tokens"],
        chunked=engine["chunked_prefill"],
        block=engine["block_size"],
        cache_tokens=engine["kv_cache_tokens"] if preempts else PLENTY,
        prefix_caching=any(line["shared_prefix"] for line in lines if line["kind"] == "request"),
    )


def simulated(lines: list[dict[str, Any]], scheduling: Scheduling | None = None, seed: int = 1) -> Reads:
    scheduling = scheduling or scheduling_of(lines)
    jobs = _jobs(lines)
    rank = Rank(scheduling, fitted(lines), random.Random(seed))
    rank.run([Job(**vars(job)) for job in jobs], max(line["at"] for line in lines if "at" in line) / MS)
    events = deliver(rank.tokens, Shape("recorded", scheduling), Hardships(), random.Random(seed)).events
    reads: dict[str, list[tuple[float, int]]] = {}
    for name, own in events.items():
        counts: dict[float, int] = defaultdict(int)
        for event in own:
            counts[event.read] += 1
        reads[name] = sorted(counts.items())
    filled = [step for step in rank.steps if step.prompts]
    decoding = [sum(1 for each in step.members if each.job.name not in step.prompts) for step in filled]
    prompts = [round(sum(step.prompts.values())) + others for step, others in zip(filled, decoding, strict=True)]
    return _reads(reads, {job.name: job.arrives for job in jobs}, prompts, scheduling.budget)


def _jobs(lines: list[dict[str, Any]]) -> list[Job]:
    sizes = recorded_sizes(lines)
    answers: dict[str, int] = defaultdict(int)
    for line in lines:
        if line["kind"] == "read":
            answers[line["id"]] += line["tokens"]
    ends = {line["id"]: line["at"] / MS for line in lines if line["kind"] == "end" and line["outcome"] == "cut"}
    shared_by: dict[str, int] = defaultdict(int)  # what is cached of it later is what the first one begins with, too
    for line in lines:
        if line["kind"] == "request" and line["shared_prefix"]:
            prefix, (prompt, uncached) = json.dumps(line["shared_prefix"]), sizes[line["id"]]
            shared_by[prefix] = max(shared_by[prefix], prompt - uncached)
    jobs = []
    for line in lines:
        if line["kind"] == "request":
            name, (prompt, _) = line["id"], sizes[line["id"]]
            shared = shared_by[json.dumps(line["shared_prefix"])] if line["shared_prefix"] else 0
            job = Job(name, line["at"] / MS, prompt, max(answers[name], 1), shared=shared, streams=line["stream"])
            job.leaves = ends.get(name)
            jobs.append(job)
    return jobs


def fitted(lines: list[dict[str, Any]]) -> Speed:
    """What a step of this engine takes. Clear ones first: a base and a share of the context of who decodes; then what
    prompts add to it. Both by the line of least deviations, since some steps are long for no reason of their own."""
    steps = [line for line in lines if line["kind"] == "step"]
    clear, reading = [], []
    for before, step in pairwise(steps):
        took = (step["done"] - max(step["scheduled"], before["done"])) / MS
        context = sum(at for _, _, kind, at in step["requests"] if kind == "d")
        read = [(tokens, at) for _, tokens, kind, at in step["requests"] if kind != "d"]
        tokens = sum(each for each, _ in read)
        deep = sum(each * (at + each / 2) for each, at in read)
        if not read:
            clear.append(((1.0, context), took))
        elif tokens >= FEWEST:
            reading.append(((tokens, deep), took, context))
    base, per_context = _line([row for row, _ in clear], [took for _, took in clear])
    off = [abs(took / (base + per_context * row[1]) - 1) for row, took in clear]
    beyond = [took - base - per_context * context for _, took, context in reading]
    token, deeper = _line([row for row, *_ in reading], beyond)
    noise = 1.48 * float(np.median(off))
    return Speed(base, 0.0, per_context, token, attention_tokens=token / deeper, noise=noise)


def _line(rows: list[tuple[float, float]], values: list[float]) -> tuple[float, float]:
    """Two coefficients by least squares whose weights are renewed a few times. Where one comes out below nothing there
    is no telling them apart, and the first has all."""
    columns, wanted = np.array(rows, float), np.array(values)
    weights = np.ones(len(wanted))
    for _ in range(20):
        found, *_ = np.linalg.lstsq(columns * weights[:, None], wanted * weights, rcond=None)
        if found.min() < 0 or found[0] < SHALLOWEST * found[1]:
            return float(np.median(wanted / columns[:, 0])), 1e-9
        weights = 1 / np.sqrt(np.maximum(np.abs(columns @ found - wanted), 0.5))
    return float(found[0]), float(found[1])


def _reads(reads: dict[str, list[tuple[float, int]]], sent: dict[str, float], prompts: list[int], budget: int) -> Reads:
    gaps = [later - before for own in reads.values() for (before, _), (later, _) in pairwise(own)]
    counts = [count for own in reads.values() for _, count in own]
    full = sum(tokens >= budget for tokens in prompts) / max(len(prompts), 1)
    first = [own[0][0] - sent[name] for name, own in reads.items() if own]
    return Reads(gaps, sum(count > 1 for count in counts) / len(counts), len(prompts), full, first)
