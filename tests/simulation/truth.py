"""Why a stall was one: what the engine's log and the stages of delivery say of the time between two reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

from tests.simulation.delivery import Delivery, Event, after
from tests.simulation.engine import Rank, Span, Token
from tests.simulation.faults import Hardships

#: A cause that made less of a stall is not *the* cause.
MOST = 0.4
#: A prompt of somebody who does not come through us: nobody can name it, and nobody else is to be named for it.
UNSEEN_PROMPT = "prompt out of sight"
#: The rule of a stall, as the glossary has it, in milliseconds.
LEAST, FACTOR, ALWAYS = 100.0, 4.0, 1000.0
#: From so much of that on the cause of a gap is known here, should anybody call it a stall.
NEARLY = 0.6


@dataclass(frozen=True)
class TrueStall:
    """``excess``: what its reader waited beyond a step, however many tokens came then. ``causes`` in milliseconds,
    ``culprits`` in prompt tokens. ``plain``: it is long beyond doubt."""

    name: str
    start: float
    end: float
    excess: float
    causes: dict[str, float]
    culprits: dict[str, float]
    plain: bool

    @property
    def cause(self) -> str:
        """The one that made most of it; "none" where none made enough."""
        most = max(self.causes, key=lambda cause: self.causes[cause], default="none")
        return most if self.causes.get(most, 0.0) >= MOST * self.excess else "none"


def true_stalls(
    ranks: list[Rank], delivery: Delivery, hardships: Hardships, clear: float, interval: int
) -> dict[str, list[TrueStall]]:
    found: dict[str, list[TrueStall]] = defaultdict(list)
    for name, events in delivery.events.items():
        ordered = sorted(events, key=lambda event: event.choice.choice)
        for _, own in groupby(ordered, key=lambda event: event.choice.choice):
            reads = [list(each) for _, each in groupby(own, key=lambda event: event.read)]
            job = events[0].choice.job
            found[name] += _stalls(ranks[job.rank], reads, hardships, clear, max(interval, job.interval))
    return found


def freezes(truth: dict[str, list[TrueStall]]) -> list[Span]:
    """When somebody stood still for another reason than that nothing was to be read, or was read."""
    idle = ("none", "client")
    return sorted((each.start, each.end) for own in truth.values() for each in own if each.cause not in idle)


def _stalls(
    rank: Rank, reads: list[list[Event]], hardships: Hardships, clear: float, interval: int
) -> Iterator[TrueStall]:
    tokens = [token for read in reads for event in read for token in event.tokens]
    per_step, stride = _pace(tokens)
    beat = clear * stride * max(interval / per_step, 1.0)  # between two events, when nothing is in the way
    for before, read in pairwise(reads):
        start, end = before[-1].read, read[0].read
        # Who counts a fat event as one token, or has a baseline a little below the clear step, may call shorter ones a
        # stall; then its cause has to be right.
        if end - start < NEARLY * min(max(LEAST, FACTOR * beat), ALWAYS):
            continue
        brought = [token for event in read for token in event.tokens]
        usual = max(clear * stride * len(brought) / per_step, beat)
        least = min(max(LEAST, FACTOR * usual), ALWAYS)
        first = read[0].tokens
        withheld = first[0].sequence.job.withheld[1] and len(first) > interval
        ready = first[-1] if withheld else brought[min(interval, len(first)) - 1]
        causes: dict[str, float] = defaultdict(float)
        culprits = _in_engine(rank, before[-1].tokens[-1], ready, start, causes)
        _on_the_way(read[0], ready, start, hardships, causes)
        plain = end - start >= 1.15 * least
        yield TrueStall(read[0].choice.job.name, start, end, end - start - beat, dict(causes), culprits, plain)


def _pace(tokens: list[Token]) -> tuple[float, float]:
    """Tokens that a step makes of one stream, and every how many steps it is in one: guesses that were right make the
    first more than one, the cohorts of a pipeline the second."""
    steps = sorted({token.step for token in tokens})
    strides = sorted(later - earlier for earlier, later in pairwise(steps))
    return max(len(tokens) / max(len(steps), 1), 1.0), strides[len(strides) // 2] if strides else 1.0


def _in_engine(rank: Rank, last: Token, ready: Token, start: float, causes: dict[str, float]) -> dict[str, float]:
    sequence = ready.sequence
    culprits: dict[str, float] = defaultdict(float)
    for step in rank.steps[last.step + 1 : ready.step + 1]:
        if step.end <= start:
            continue
        part = min(1.0, (step.end - start) / (step.end - step.start))
        causes["engine_pause"] += part * step.stopped
        if sequence in rank.preempted and sequence not in step.members:
            causes["preemption"] += part * (step.clear + step.prefill + step.recomputing)
            continue
        causes["preemption"] += part * step.recomputing
        seen = {name: tokens for name, tokens in step.prompts.items() if name not in rank.unseen}
        ours = sum(seen.values()) / sum(step.prompts.values()) if seen else 0.0
        causes["prefill"] += part * step.prefill * ours
        causes[UNSEEN_PROMPT] += part * step.prefill * (1.0 - ours)
        for name, tokens in seen.items():
            culprits[name] += tokens
    return dict(culprits)


def _on_the_way(event: Event, ready: Token, start: float, hardships: Hardships, causes: dict[str, float]) -> None:
    looped = after(hardships.relay, event.arrived)
    stages = (
        ("engine_pause" if hardships.host else "frontend", ready.made, event.written),
        ("buffering", event.written, event.passed),
        ("ours", event.arrived, looped),
        ("client", looped, event.read),
    )
    for cause, since, until in stages:
        causes[cause] += max(0.0, until - max(since, start))
