"""One run, from its seed to what the observer says of it: through the records of the tap into the pure core."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from tests.core.script import Observed, Relay, ns
from tests.simulation import wire
from tests.simulation.delivery import Delivery, Event, after, deliver
from tests.simulation.engine import Job, Rank, clear_step
from tests.simulation.faults import Fault, Hardships
from tests.simulation.load import load, speed
from tests.simulation.shapes import Shape
from tests.simulation.truth import TrueStall, true_stalls

from prefillwatch.analysis.delays import Stall
from prefillwatch.analysis.verdicts.evidence import EnginePage
from prefillwatch.units import MS
from prefillwatch.wire.tap import Finish, Kind

UNTIL = 30_000.0
PACKET = 20.0
PAGE_EVERY = 1000.0
#: Long enough for every verdict to become final.
AFTERWARDS = 35_000.0
TOKENISING = 0.002  # milliseconds per token, before the engine knows of a prompt


@dataclass
class Run:
    """What happened, and what was said of it."""

    truth: dict[str, list[TrueStall]]
    said: list[Stall]
    hardships: Hardships


def run(shape: Shape, fault: Fault, seed: int) -> Run:
    rng = random.Random(f"{shape.name}/{fault.name}/{seed}")
    pace = speed(rng)
    hardships = fault.hardships(rng, UNTIL)
    jobs = load(shape, pace, rng, UNTIL, quiet=fault.name != "none" and rng.random() < 0.25)
    sent = {job.name: job.arrives for job in jobs}
    for job in jobs:
        job.arrives = after(hardships.api_server, job.arrives + 1.0 + TOKENISING * job.prompt + rng.random())
    ranks = [Rank(shape.scheduling, pace, random.Random(rng.random()), hardships.engine) for _ in range(shape.ranks)]
    for number, rank in enumerate(ranks):
        rank.run([job for job in jobs if job.rank == number], UNTIL)
    tokens = sorted((token for rank in ranks for token in rank.tokens), key=lambda token: token.made)
    streaming = [token for token in tokens if token.sequence.job.streams]
    delivery = deliver(streaming, shape, hardships, rng)
    whole = {token.sequence.job.name: token.made for token in tokens}  # when the last token was made
    player = _Player(shape, hardships, rng)
    for job in jobs:
        player.request(job, sent[job.name])
        player.answer(job, delivery, whole.get(job.name, 0.0))
    player.pages(ranks)
    said = player.play()
    return Run(true_stalls(ranks, delivery, hardships, clear_step(ranks), shape.interval), said, hardships)


class _Player:
    """Collects what a relay saw, then tells it in order of time."""

    def __init__(self, shape: Shape, hardships: Hardships, rng: random.Random) -> None:
        self._shape, self._hardships, self._rng = shape, hardships, rng
        self._per_token = rng.uniform(3.6, 4.6)
        self._observed = Observed()
        self._said: list[Stall] = []
        tell = self._observed.publisher.stall
        self._observed.publisher.stall = lambda stall: (self._said.append(stall), tell(stall))[1]  # type: ignore[method-assign]
        self._relay = Relay(self._observed)
        self._plan: list[tuple[float, int, bool, Callable[[float], Any]]] = []
        self._streams: dict[str, int] = {}

    def _at(self, at: float, what: Callable[[float], Any], body: bool = False) -> None:
        self._plan.append((at, len(self._plan), body, what))

    def request(self, job: Job, at: float) -> None:
        text = wire.prompt_text(job.name, job.prompt, job.shared, self._per_token)
        body: dict[str, Any] = {"messages": [{"role": "user", "content": text}], "stream": job.streams}
        body |= {"max_tokens": job.answer} | ({"n": job.choices} if job.choices > 1 else {})

        def send(at: float) -> None:
            self._streams[job.name] = self._relay.request(at, body, request_id=job.name)

        self._at(at, send)

    def answer(self, job: Job, delivery: Delivery, whole: float) -> None:
        events = delivery.events.get(job.name, [])
        if job.leaves is not None:
            self._at(job.leaves, lambda at: self._relay.end(at, self._streams[job.name], Finish.CLIENT_CLOSED))
        elif not job.streams and whole:
            self._at(whole + 2, lambda at: self._in_json(job, at))
        told: Counter[int] = Counter()  # tokens of each choice
        for at, read in groupby(events, key=lambda event: event.read):
            self._read(job, at, list(read), told)
        self._opens(job, events)
        if job.leaves is None and events and sum(told.values()) == job.answer * job.choices:
            self._at(events[-1].read, lambda at: self._ends(job, at))
        for since, until in delivery.blocked.get(job.name, ()):
            self._at(since, lambda at: self._relay.add(at, self._streams[job.name], Kind.BLOCKED))
            self._at(until, lambda at: self._relay.add(at, self._streams[job.name], Kind.UNBLOCKED))

    def _opens(self, job: Job, events: list[Event]) -> None:
        if events:
            self._at(events[0].read - 0.01, lambda at: self._relay.response(at, self._streams[job.name]))

    def _read(self, job: Job, at: float, events: list[Event], told: Counter[int]) -> None:
        data = b""
        for event in events:
            choice = event.choice.choice
            if choice not in told:
                data += wire.opener(choice)
            told[choice] += len(event.tokens)
            data += wire.event(wire.words(len(event.tokens), self._rng), choice, told[choice] == job.answer)
        self._at(at, lambda at: self._relay.data(at, self._streams[job.name], data), body=True)

    def _ends(self, job: Job, at: float) -> None:
        told = wire.usage(job.prompt, job.answer * job.choices)
        self._relay.data(at, self._streams[job.name], told + wire.DONE)
        self._relay.end(at, self._streams[job.name])

    def _in_json(self, job: Job, at: float) -> None:
        stream = self._streams[job.name]
        self._relay.response(at, stream, content_type="application/json")
        self._relay.data(at, stream, wire.answer(wire.words(job.answer, self._rng), job.prompt, job.answer))
        self._relay.end(at + 0.1, stream)

    def pages(self, ranks: list[Rank]) -> None:
        """Nobody answers while the API server stands still."""
        at = self._rng.uniform(0, PAGE_EVERY) if self._hardships.page else UNTIL
        while at < UNTIL:
            if not any(since <= at < until for since, until in self._hardships.api_server):
                self._at(at + 2, lambda at: self._page(ranks, at))
            at += PAGE_EVERY
        for since, until in self._hardships.relay:
            late = round((until - since) * MS).to_bytes(8, "little")
            self._at(until, partial(self._relay.add, stream=0, kind=Kind.LATE, payload=late))

    def _page(self, ranks: list[Rank], at: float) -> None:
        states = [rank.state(at) for rank in ranks]
        page = EnginePage(
            ns(at),
            running=sum(state.running for state in states),
            waiting=sum(state.waiting for state in states),
            kv_usage=max(state.usage for state in states) if self._shape.whole_page else None,
            preemptions=float(sum(state.preemptions for state in states)) if self._shape.whole_page else None,
            engines=len(ranks),
        )
        self._observed.ledger.page(page)

    def play(self) -> list[Stall]:
        due, only_bodies = PACKET, True
        for at, _, body, what in sorted(self._plan, key=lambda each: each[:2]):
            if at > due:
                lost = only_bodies and any(since <= due < until for since, until in self._hardships.lost)
                self._relay.flush(lose=lost)
                self._observed.advance(at)
                due, only_bodies = at + PACKET, True
            what(at)
            only_bodies = only_bodies and body
        self._relay.flush()
        self._observed.advance(self._observed.now_ms + AFTERWARDS)
        return self._said
