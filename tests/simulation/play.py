"""One run, from its seed to what the observer says of it: through the records of the tap into the pure core."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Final

from tests.core.script import Observed, Relay
from tests.simulation import server_page, wire
from tests.simulation.delivery import Delivery, Event, after, deliver
from tests.simulation.engine import Job, Rank, Span, Speed, Token, clear_step, run_in_step
from tests.simulation.faults import Fault, Hardships
from tests.simulation.learned import Learned, learned
from tests.simulation.load import load, speed
from tests.simulation.paging import EVERY, FIRST_TOKEN_STUCK, STREAM_FREEZE, Pager, held_against
from tests.simulation.shapes import Shape
from tests.simulation.truth import TrueStall, freezes, true_stalls

from prefillwatch.analysis.delays import Stall
from prefillwatch.core.inputs import Page
from prefillwatch.engine.kinds import read_page
from prefillwatch.units import MS
from prefillwatch.wire.tap import Finish, Kind, RequestHead, encode_payload

PACKET: Final = 20.0
BEAT: Final = 200.0  # as the observer's process has it
PATIENT_BEAT: Final = 1000.0
MINUTES: Final = 60_000.0  # runs from so long on are those that an alert can page in
LONG_BEAT: Final = 500.0
#: Long enough for every verdict to become final.
AFTERWARDS: Final = 35_000.0
TOKENISING: Final = 0.002  # milliseconds per token, before the engine knows of a prompt
POLLED_EVERY: Final = 1000.0


@dataclass
class Run:
    """What happened, and what was said of it."""

    truth: dict[str, list[TrueStall]]
    said: list[Stall]
    hardships: Hardships
    learned: Learned
    pages: list[tuple[str, str]]  # of critical alerts, and whether there was a reason; see `paging`
    ranks: list[Rank]
    delivery: Delivery


@dataclass
class Scene:
    """What is going to happen in a run: who asks for what when, and what goes wrong."""

    shape: Shape
    pace: Speed
    jobs: list[Job]
    hardships: Hardships
    until: float
    seed: str

    @property
    def sent(self) -> dict[str, float]:
        """When each request is sent, as we have it."""
        rng = random.Random(f"{self.seed}, sent")
        return {job.name: job.arrives + self.hardships.blur * rng.uniform(-1, 1) for job in self.jobs}


def scene(shape: Shape, fault: Fault, seed: int) -> Scene:
    name = f"{shape.name}/{fault.name}/{seed}"
    rng = random.Random(name)
    until = shape.milliseconds
    pace = speed(shape, rng)
    hardships = fault.hardships(rng, pace.base, until)
    jobs = load(shape, pace, rng, until, quiet=fault.name != "none" and rng.random() < 0.25)
    fault.befall(jobs, hardships, rng)
    return Scene(shape, pace, jobs, hardships, until, name)


def run(shape: Shape, fault: Fault, seed: int) -> Run:
    return played(scene(shape, fault, seed))


def played(scene: Scene) -> Run:
    shape, hardships, until = scene.shape, scene.hardships, scene.until
    rng = random.Random(scene.seed)
    sent = scene.sent
    jobs = [replace(job) for job in scene.jobs]
    for job in jobs:
        job.arrives = after(hardships.api_server, job.arrives + 1.0 + TOKENISING * job.prompt + rng.random())
    resets = [shape.asked.reset_every * each for each in range(1, 10)] if shape.asked.reset_every else []
    ranks = [
        Rank(shape.scheduling, scene.pace, random.Random(rng.random()), hardships.engine, list(resets))
        for _ in range(shape.ranks)
    ]
    if shape.in_step:
        run_in_step(ranks, jobs, until)
    else:
        for number, rank in enumerate(ranks):
            rank.run([job for job in jobs if job.rank == number], until)
    tokens = sorted((token for rank in ranks for token in rank.tokens), key=lambda token: token.made)
    streaming = [token for token in tokens if token.sequence.job.streams and token.sequence.job.seen]
    delivery = deliver(streaming, shape, hardships, rng)
    player = _Player(shape, hardships, rng, until)
    for job in jobs:
        if job.seen:
            own = [token for token in tokens if token.sequence.job is job] if job.hidden or not job.streams else []
            player.request(job, sent[job.name])
            player.answer(job, delivery, own)
    player.server(ranks)
    said = player.play()
    truth = true_stalls(ranks, delivery, hardships, clear_step(ranks), shape.interval)
    reasons = {STREAM_FREEZE: freezes(truth), FIRST_TOKEN_STUCK: list(_never_begun(jobs, sent, tokens, until))}
    pages = list(held_against(player.pager.paged, reasons))
    return Run(truth, said, hardships, learned(player.observed, ranks), pages, ranks, delivery)


def _never_begun(jobs: list[Job], sent: dict[str, float], tokens: list[Token], until: float) -> Iterator[Span]:
    """From when until when each request waited that the engine had not begun with."""
    begun = {token.sequence.job.name for token in tokens}
    return ((sent[job.name], until) for job in jobs if job.name not in begun and job.seen)


class _Player:
    """Collects what a relay saw, then tells it in order of time."""

    def __init__(self, shape: Shape, hardships: Hardships, rng: random.Random, until: float) -> None:
        self._shape, self._hardships, self._rng = shape, hardships, rng
        self._until = until
        self._per_token = rng.uniform(3.6, 4.6)
        self.observed = Observed()
        self._said: list[Stall] = []
        tell = self.observed.publisher.stall
        self.observed.publisher.stall = lambda stall: (self._said.append(stall), tell(stall))[1]  # type: ignore[method-assign]
        self._relay = Relay(self.observed)
        self._plan: list[tuple[float, int, bool, Callable[[float], Any]]] = []
        self._streams: dict[str, int] = {}
        self.pager = Pager()

    def _at(self, at: float, what: Callable[[float], Any], body: bool = False) -> None:
        self._plan.append((at, len(self._plan), body, what))

    # --- Requests ---

    def request(self, job: Job, at: float) -> None:
        body = wire.body_of(job, self._per_token, self._rng)

        def send(at: float) -> None:
            self._streams[job.name] = self._relay.request(at, body, wire.path_of(job), request_id=job.name)

        self._at(at, send)
        if job.background:
            self._accepted(job, at + 5.0)
        elif job.hidden:
            self._opens(job, at + 5.0, wire.opener(job, 0))

    def _accepted(self, job: Job, at: float) -> None:
        """Who wants it streamed sees that it was; who does not is told so, and asks again and again."""
        if job.streams:
            self._opens(job, at, wire.opener(job, 0))
            return
        self._at(at, lambda at: self._json(job.name, at, wire.queued("queued")))

    def _opens(self, job: Job, at: float, data: bytes = b"") -> None:
        def open_(at: float) -> None:
            self._relay.response(at, self._streams[job.name])
            if data:
                self._relay.data(at, self._streams[job.name], data)

        self._at(at, open_)

    # --- Answers ---

    def answer(self, job: Job, delivery: Delivery, own: list[Any]) -> None:
        """``own``: the tokens of what is not streamed, or not shown."""
        events = delivery.events.get(job.name, [])
        if job.leaves is not None:
            self._at(job.leaves, lambda at: self._relay.end(at, self._streams[job.name], Finish.CLIENT_CLOSED))
        if not job.streams:
            self._not_streamed(job, own)
            return
        if self._shape.asked.thought_is_counted:
            for number, token in enumerate(own[: job.hidden]):
                self._at(token.made + 0.5, partial(self._thinks, job, number + 1), body=True)
        told: Counter[int] = Counter()  # tokens of each choice
        for at, read in groupby(events, key=lambda event: event.read):
            self._read(job, at, list(read), told)
        if events and not job.hidden and not job.background:
            self._opens(job, events[0].read - 0.01)
        if job.leaves is not None:
            return
        if events and sum(told.values()) == job.generated - job.hidden * job.answers:
            self._at(events[-1].read + job.end_held, lambda at: self._ends(job, at))
        else:  # the run is over before the answer
            last = max([self._until + PACKET, *(event.read for event in events[-1:])])
            self._at(last, lambda at: self._relay.end(at, self._streams[job.name], Finish.CLIENT_CLOSED))
        for since, until in delivery.blocked.get(job.name, ()):
            self._at(since, lambda at: self._relay.add(at, self._streams[job.name], Kind.BLOCKED))
            self._at(until, lambda at: self._relay.add(at, self._streams[job.name], Kind.UNBLOCKED))

    def _not_streamed(self, job: Job, own: list[Any]) -> None:
        ready = own[-1].made if len(own) >= job.generated else None
        if job.background:
            at = job.arrives + POLLED_EVERY
            while at < self._until:
                done = ready is not None and at > ready
                self._poll(at, "completed" if done else "in_progress")
                if done:
                    return
                at += POLLED_EVERY
        elif ready is not None:
            self._at(ready + 2, lambda at: self._json(job.name, at, wire.whole(job, self._rng)))
        elif job.leaves is None:
            name = job.name
            self._at(self._until + PACKET, lambda at: self._relay.end(at, self._streams[name], Finish.CLIENT_CLOSED))

    def _thinks(self, job: Job, tokens: int, at: float) -> None:
        self._relay.data(at, self._streams[job.name], wire.counted(job, tokens))

    def _read(self, job: Job, at: float, events: list[Event], told: Counter[int]) -> None:
        data = b""
        for event in events:
            choice, count = event.choice.choice, len(event.tokens)
            if choice not in told and not job.hidden and not job.background:
                data += wire.opener(job, choice)
            told[choice] += count
            data += wire.event(
                job, wire.words(count, self._rng), choice, told[choice] == job.answer_of(choice) - job.hidden
            )
        self._at(at, lambda at: self._relay.data(at, self._streams[job.name], data), body=True)

    def _ends(self, job: Job, at: float) -> None:
        self._relay.data(at, self._streams[job.name], wire.ends(job))
        self._relay.end(at, self._streams[job.name])

    def _json(self, name: str, at: float, data: bytes) -> None:
        stream = self._streams[name]
        self._relay.response(at, stream, content_type="application/json")
        self._relay.data(at, stream, data)
        self._relay.end(at + 0.1, stream)

    def _poll(self, at: float, status: str) -> None:
        name = f"poll-{at}"
        self._at(at, partial(self._asks, name, "GET", f"/v1/responses/{wire.RESPONSE}"))
        self._at(at + 3.0, lambda at: self._json(name, at, wire.queued(status)))

    def _asks(self, name: str, method: str, path: str, at: float) -> None:
        """Something without a body."""
        stream = self._streams[name] = self._relay.opened()
        self._relay.add(at, stream, Kind.REQUEST, encode_payload(RequestHead(method, path, "", content_length=0)))
        self._relay.add(at, stream, Kind.REQUEST_END, bytes(8))
        self._relay.add(at, stream, Kind.SENT)

    # --- Server, relay ---

    def server(self, ranks: list[Rank]) -> None:
        hardships = self._hardships
        for _, of, at in server_page.asked_and_answered(hardships, self._rng, self._until):
            self._at(at, partial(self._page, ranks, of))
        if hardships.asked:
            words = hardships.asked.split()
            for since, until in hardships.engine:
                for path, at in zip(words, (since - 1.0, until - 1.0), strict=True):
                    if path != "-":
                        name = f"{path}-{at}"
                        self._at(at, partial(self._asks, name, "POST", path))
                        answered = at + 4.0 if at > since else until  # who asks for rest is told when it is over
                        self._at(answered, partial(self._json, name, data=b'{"status":"ok"}'))
        for since, until in hardships.relay:
            late = round((until - since) * MS).to_bytes(8, "little")
            self._at(until, partial(self._relay.add, stream=0, kind=Kind.LATE, payload=late))

    def _page(self, ranks: list[Rank], of: float, at: float) -> None:
        sample = read_page(server_page.page(self._shape, ranks, self._hardships, of))
        offset = server_page.EPOCH + server_page.offset(self._hardships, at)
        self.observed.feed(Page(sample, offset))

    # --- The run ---

    def play(self) -> list[Stall]:
        due, beat, look, only_bodies = PACKET, BEAT, EVERY, True
        beat_every = BEAT if self._until < MINUTES else LONG_BEAT
        lost = self._hardships.lost
        for at, _, body, what in sorted(self._plan, key=lambda each: each[:2]):
            if at > due:
                self._relay.flush(
                    lose=bool(lost) and only_bodies and any(since <= due < until for since, until in lost)
                )
                only_bodies, due = True, at + PACKET
                while beat <= at:
                    self.observed.now_ms = beat
                    self.observed.observation.beat()
                    beat += beat_every
                    if beat > look and self._until >= MINUTES:
                        self.pager.look(self.observed, look)
                        look += EVERY
                self.observed.now_ms = at
            what(at)
            only_bodies = only_bodies and body
        self._relay.flush()
        for _ in range(round(AFTERWARDS / PATIENT_BEAT)):  # nothing happens any more
            self.observed.now_ms += PATIENT_BEAT
            self.observed.observation.beat()
        return self._said
