"""Why a stall was one: what the engine's log and the stages of delivery say of the time between two reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

from tests.simulation.delivery import Delivery, Event, after
from tests.simulation.engine import Rank, Token
from tests.simulation.faults import Hardships

#: A cause that made less of a stall is not *the* cause.
MOST = 0.4
#: The rule of a stall, as the glossary has it, in milliseconds.
LEAST, FACTOR, ALWAYS = 100.0, 4.0, 1000.0


@dataclass(frozen=True)
class TrueStall:
    """``excess``: what its reader waited beyond a step, however many tokens came then. ``causes`` in milliseconds,
    ``culprits`` in prompt tokens. ``plain``: it is long beyond doubt."""

    name: str
    start: float
    end: float
    excess: float
    causes: dict[str, float]
    culprits: dict[str, int]
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
            rank = ranks[events[0].choice.job.rank]
            found[name] += _stalls(rank, delivery, reads, hardships, clear, interval)
    return found


def _stalls(
    rank: Rank, delivery: Delivery, reads: list[list[Event]], hardships: Hardships, clear: float, interval: int
) -> Iterator[TrueStall]:
    for before, read in pairwise(reads):
        start, end = before[-1].read, read[0].read
        brought = [token for event in read for token in event.tokens]
        usual = clear * max(len(brought) / interval, 1.0) * interval
        least = min(max(LEAST, FACTOR * usual), ALWAYS)
        if end - start < least:
            continue
        ready = brought[min(interval, len(read[0].tokens)) - 1]
        causes: dict[str, float] = defaultdict(float)
        culprits = _in_engine(rank, before[-1].tokens[-1], ready, start, causes)
        _on_the_way(read[0], ready, start, hardships, causes)
        excess = end - start - clear * interval
        plain = end - start >= 1.15 * least
        yield TrueStall(read[0].choice.job.name, start, end, excess, dict(causes), culprits, plain)


def _in_engine(rank: Rank, last: Token, ready: Token, start: float, causes: dict[str, float]) -> dict[str, int]:
    sequence = ready.sequence
    culprits: dict[str, int] = defaultdict(int)
    for step in rank.steps[last.step + 1 : ready.step + 1]:
        if step.end <= start:
            continue
        part = min(1.0, (step.end - start) / (step.end - step.start))
        causes["engine_pause"] += part * step.stopped
        if sequence in rank.preempted and sequence not in step.members:
            causes["preemption"] += part * (step.clear + step.prefill + step.recomputing)
            continue
        causes["preemption"] += part * step.recomputing
        causes["prefill"] += part * step.prefill
        for name, tokens in step.prompts.items():
            culprits[name] += tokens
    return dict(culprits)


def _on_the_way(event: Event, ready: Token, start: float, hardships: Hardships, causes: dict[str, float]) -> None:
    looped = after(hardships.relay, event.arrived)
    host = bool(hardships.engine and hardships.api_server)
    stages = (
        ("engine_pause" if host else "frontend", ready.made, event.written),
        ("buffering", event.written, event.passed),
        ("ours", event.arrived, looped),
        ("client", looped, event.read),
    )
    for cause, since, until in stages:
        causes[cause] += max(0.0, until - max(since, start))
