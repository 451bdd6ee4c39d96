"""Holds the prefill timeline against the truth, one line per workload.

.venv/bin/python tests/judges/timeline.py [NAME ...]
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


from tests.judges.truth import Inferred, Seen, from_recording, observe
from tests.judges.workloads import SIMULATED

from prefillwatch.units import MS

RECORDINGS = Path(__file__).resolve().parents[1] / "data" / "recordings"
#: A prompt is a plausible cause of a stall up to so many times what its tokens should cost.
SLACK = 2.0


@dataclass
class Score:
    """`recall` and `precision` of "prefill" in stall seconds, `split`: share of TTFT on the wrong side, `names`:
    share of stall seconds blamed on the wrong prompts, `sums`: prompt tokens of all steps, ours over the engine's."""

    stalls: int
    prefill_seconds: float
    recall: float
    precision: float
    split: float
    names: float
    sums: float
    #: Share of prefill's stall seconds known as such within a tick after the end of the stall, before anything is
    #: final.
    early: float
    #: Stall seconds of other causes that looked like prefill then, without regard to what is plausible.
    early_false: float
    budget: int
    cost_us: float
    lost_splits: int

    def line(self) -> str:
        return (
            f"{self.stalls:6d} {self.prefill_seconds:8.1f} {self.recall:7.3f} {self.precision:7.3f} {self.split:7.3f} "
            f"{self.names:7.3f} {self.sums:7.3f} {self.early:6.3f} {self.early_false:6.1f} {self.budget:7d} "
            f"{self.cost_us:7.0f} {self.lost_splits:4d}"
        )


HEAD = f"{'workload':28s} stalls  prefill  recall  precis   split   names    sums  early  false  budget cost_us lost"


@dataclass
class Stall:
    rid: str
    start_ns: int
    end_ns: int
    excess_ns: int
    truth: dict[str, int]
    is_prefill: bool


def stalls_of(seen: Seen, clear_ns: int) -> list[Stall]:
    found = []
    costs = [
        (step.end_ns - step.start_ns - step.paused_ns - clear_ns) / sum(step.prefill.values())
        for step in seen.steps
        if sum(step.prefill.values()) >= 100
    ]
    cost_ns = sorted(costs)[len(costs) // 2] if costs else 0.0
    for rid, reads in seen.reads.items():
        for (start_ns, before), (end_ns, by) in pairwise(reads):
            gap_ns = end_ns - start_ns
            if gap_ns >= 1000 * MS or (gap_ns >= 100 * MS and gap_ns >= 4 * clear_ns):
                found.append(stall(seen, rid, start_ns, end_ns, before, by, clear_ns, cost_ns))
    return found


def stall(
    seen: Seen, rid: str, start_ns: int, end_ns: int, before: int, by: int, clear_ns: int, cost_ns: float
) -> Stall:
    """Truth: the prompts in the engine's steps of the gap; none where most of it was a pause or a recomputation."""
    steps = seen.steps[before + 1 : by + 1]
    truth: dict[str, int] = {}
    for step in steps:
        for culprit, tokens in step.prefill.items():
            truth[culprit] = truth.get(culprit, 0) + tokens
    carried_ns = sum(step.end_ns - step.start_ns - step.paused_ns for step in steps if step.prefill)
    tokens = sum(truth.values())
    is_prefill = (
        carried_ns > (end_ns - start_ns) / 2
        and tokens > sum(step.recomputed for step in steps)
        and carried_ns < 5 * (clear_ns * len(steps) + cost_ns * tokens)
    )
    return Stall(rid, start_ns, end_ns, end_ns - start_ns - clear_ns, truth, is_prefill)


def score(seen: Seen) -> Score:
    inferred = observe(seen)
    durations = sorted(step.end_ns - step.start_ns for step in seen.steps if not step.prefill)
    clear_ns = durations[len(durations) // 2] if durations else 10 * MS
    stalls = stalls_of(seen, clear_ns)
    hit = missed = false = wrong = early = early_false = 0.0
    ends = [fact.end_ns for fact in inferred.facts]
    for each in stalls:
        blamed = plausible(seen, each, inferred, ends)
        seconds = each.excess_ns / 1e9
        looked = inferred.early.get((each.rid, each.end_ns), 0) > 0
        if each.is_prefill:
            hit += seconds * bool(blamed)
            early += seconds * looked
            missed += seconds * (not blamed)
            wrong += seconds * (1 - agreement(blamed, each.truth)) if blamed else 0
        else:
            false += seconds * bool(blamed)
            early_false += seconds * looked
    return Score(
        len(stalls),
        hit + missed,
        hit / (hit + missed) if hit + missed else 1.0,
        hit / (hit + false) if hit + false else 1.0,
        split_error(seen, inferred),
        wrong / hit if hit else 0.0,
        sum(fact.prefill_tokens for fact in inferred.facts)
        / max(1, sum(sum(step.prefill.values()) for step in seen.steps)),
        early / (hit + missed) if hit + missed else 1.0,
        early_false,
        inferred.timeline.engine.budget,
        inferred.timeline.engine.cost.token_ns / 1e3,
        len([rid for rid, reads in seen.reads.items() if reads and rid not in inferred.splits]),
    )


def plausible(seen: Seen, stall: Stall, inferred: Inferred, ends: list[int]) -> dict[str, int]:
    """Whom the final steps blame for a stall, if those prompts can have taken that long."""
    low = bisect_right(ends, stall.start_ns)
    high = max(bisect_right(ends, stall.end_ns), low + 1)
    blamed: dict[str, int] = {}
    for fact in inferred.facts[low:high]:
        for rid, tokens in fact.members:
            blamed[str(rid)] = blamed.get(str(rid), 0) + tokens
    cost = inferred.timeline.engine.cost
    possible_ns = SLACK * sum(cost.expect_ns(tokens, seen.prompts[rid][1] - tokens) for rid, tokens in blamed.items())
    return blamed if stall.excess_ns <= possible_ns else {}


def agreement(blamed: dict[str, int], truth: dict[str, int]) -> float:
    ours, theirs = sum(blamed.values()), sum(truth.values())
    return sum(min(tokens / ours, truth.get(rid, 0) / theirs) for rid, tokens in blamed.items())


def split_error(seen: Seen, inferred: Inferred) -> float:
    """Share of all time to first token that lies on the wrong side of the split."""
    begun: dict[str, int] = {}
    for step in seen.steps:
        for rid in step.prefill:
            begun.setdefault(rid, step.start_ns)
    wrong = total = 0
    for rid, split in inferred.splits.items():
        sent_ns = seen.prompts[rid][0]
        ttft_ns = seen.reads[rid][0][0] - sent_ns
        wrong += abs(split.queue_ns - (begun[rid] - sent_ns))
        total += ttft_ns
    return wrong / max(1, total)


def main(names: list[str]) -> None:
    print(HEAD)
    for name, make in SIMULATED.items():
        if not names or name in names:
            print(f"{name:28s} {score(make()).line()}", flush=True)
    for path in sorted(RECORDINGS.glob("*.jsonl.gz")):
        name = path.name.removesuffix(".jsonl.gz")
        if not names or name in names:
            print(f"{name:28s} {score(from_recording(path)).line()}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
