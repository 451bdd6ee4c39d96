"""One law on one scene: what its users got, and what it bought for that."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.autoscaling.control import SYNC_EVERY, Autoscaler
from tests.autoscaling.fleet import Fleet, Served
from tests.autoscaling.laws import Law, Promise, S
from tests.autoscaling.traffic import Scene
from tests.simulation.engine import Job, Scheduling, Speed

#: An engine that is slow, so that an hour has few tokens: eight streams are a full batch and just keep the promise.
PACE: Final = Speed(base=40.0, per_sequence=6.0, per_prompt_token=0.1)
#: 8192 tokens a step is what current servers take on large GPUs where nobody says anything else.
SCHEDULING: Final = Scheduling(seats=8, budget=8192)
PROMISE: Final = Promise()
#: Seconds until a replica that was asked for is ready: what the guide got it down to.
COLD_START: Final = 100.0
#: Milliseconds before a purchase, and after it is ready, that it is judged by.
JUDGED_BY: Final = 180.0 * S
#: By so much more of the requests have to keep their promises for a replica to have helped.
HELPED: Final = 0.01
#: Of the seats of a fleet, so many can be taken without anybody waiting for one.
ROOM: Final = 0.8
_AFTERWARDS: Final = 300.0 * S


class Look(NamedTuple):
    """What the autoscaler found and left."""

    at: float  # seconds
    provisioned: int
    ready: int
    in_flight: int  # requests


@dataclass(frozen=True)
class Moment:
    """A look, and what came since the one before."""

    at: float
    provisioned: int
    ready: int
    in_flight: int
    offered: int  # requests
    kept: int  # … of which so many kept their promises


@dataclass
class Outcome:
    scene: str
    law: str
    requests: int
    kept: int
    smooth: int  # requests that kept them, and whose gaps did in 99 of 100
    missed: dict[str, int]
    replica_hours: float
    length: float  # seconds
    bought: int
    in_vain: int
    moments: list[Moment] = field(default_factory=list)

    @property
    def attainment(self) -> float:
        return self.kept / self.requests

    @property
    def smoothness(self) -> float:
        return self.smooth / self.requests

    @property
    def replicas(self) -> float:
        return self.replica_hours * 3600.0 / self.length


def play(scene: Scene, law: Law, *, start: int | None = None) -> Outcome:
    fleet = Fleet(
        SCHEDULING,
        PACE,
        start or law.behavior.fewest,
        gap=PROMISE.gap,
        cold_start=COLD_START * S,
        watched=law.watched,
    )
    autoscaler = Autoscaler(law.behavior)
    jobs = iter(scene.jobs())
    job: Job | None = next(jobs, None)
    purchases: list[tuple[float, int]] = []
    looks: list[Look] = []
    now = 0.0
    while now < scene.length:
        now += SYNC_EVERY
        while job is not None and job.arrives < now * S:
            fleet.send(job)
            job = next(jobs, None)
        fleet.go_on(now * S)
        before = len(fleet.provisioned)
        fleet.scale(autoscaler.decide(now, before, law.wish(fleet, PROMISE)))
        after = len(fleet.provisioned)
        if after > before:
            purchases.append((now * S, after - before))
        looks.append(Look(now, after, len(fleet.ready), fleet.in_flight))
    hours = fleet.paid_for(now * S) / S / 3600.0
    fleet.go_on(now * S + _AFTERWARDS)
    served = fleet.served
    missed = Counter(why for each in served if (why := why_missed(each)))
    return Outcome(
        scene.name,
        law.name,
        len(served),
        len(served) - missed.total(),
        sum(not why_missed(each) and each.late * 100 <= each.job.answer for each in served),
        dict(missed),
        hours,
        now,
        sum(count for _, count in purchases),
        sum(in_vain(served, looks, *purchase) for purchase in purchases),
        list(_moments(looks, served)),
    )


def why_missed(served: Served) -> str:
    """Why a request did not keep its promises; empty: it did. By what the engine did, and not by what we say of it.

    Of its own length: read alone on an idle engine it would have been late as well. Interference: what its steps took
    but for prompts would have kept the promise. Capacity: it waited, or the batch was too large.
    """
    if served.first is None or served.last is None or not served.ended:
        return "capacity"
    if served.first - served.sent > PROMISE.ttft:
        return "own length" if alone(served.job) > PROMISE.ttft else "capacity"
    gaps = served.tokens - 1
    if served.last - served.first > PROMISE.tpot * gaps:
        return "capacity" if served.clear > PROMISE.tpot * gaps else "interference"
    return ""


def alone(job: Job) -> float:
    """Milliseconds until the first token of a prompt, were it the only one."""
    steps = -(-job.prompt // SCHEDULING.budget)
    depth = 1 + job.prompt / 2 / PACE.attention_tokens
    return steps * PACE.base + PACE.per_prompt_token * job.prompt * depth


def in_vain(served: Iterable[Served], looks: Iterable[Look], at: float, bought: int) -> int:
    """How many of the replicas bought then nobody needed: until three minutes after they were ready all that was in
    flight would have had room without them, and no more requests kept their promises than before."""
    served = list(served)
    ready = at + COLD_START * S
    before = [each for each in served if at - JUDGED_BY <= each.sent < at]
    after = [each for each in served if ready <= each.sent < ready + JUDGED_BY]
    if not before or not after or _kept(after) >= _kept(before) + HELPED:
        return 0
    needed = max(
        each.in_flight / (ROOM * SCHEDULING.seats) - (each.provisioned - bought)
        for each in looks
        if at <= each.at * S <= ready + JUDGED_BY
    )
    return bought - min(max(math.ceil(needed), 0), bought)


def _kept(served: list[Served]) -> float:
    return sum(not why_missed(each) for each in served) / len(served)


def _moments(looks: list[Look], served: list[Served]) -> Iterable[Moment]:
    by_look: dict[int, list[Served]] = {}
    for each in served:
        by_look.setdefault(int(each.sent / S // SYNC_EVERY), []).append(each)
    for number, look in enumerate(looks):
        own = by_look.get(number, [])
        yield Moment(*look, len(own), sum(not why_missed(each) for each in own))
