"""Several engines behind a router, in virtual time: each with a core of ours beside it where its signal is asked for.

Replicas are paid for from the moment they are asked for until they are gone: while they load, and while what they have
begun comes to its end. Milliseconds from the start of a run, as in the simulation of one engine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from tests.core.script import Observed, Relay
from tests.simulation import server_page, wire
from tests.simulation.engine import Job, Rank, Scheduling, Speed
from tests.simulation.faults import Hardships
from tests.simulation.shapes import Shape

from prefillwatch.core.inputs import Page
from prefillwatch.engine.kinds import read_page

#: From the end of a step until its tokens are read, and from a request until the engine has it.
DELIVERED: Final = 0.5
TAKEN: Final = 2.0
_CHARACTERS_PER_TOKEN: Final = 4.1
_BEAT: Final = 500.0
_PAGE: Final = 1000.0


@dataclass(eq=False)
class Served:
    """One request, as it was."""

    job: Job
    sent: float
    begun: float | None = None  # the first step with a part of its prompt began
    first: float | None = None  # its first token was made
    last: float | None = None
    tokens: int = 0
    clear: float = 0.0  # of the steps that made its tokens, what they took but for prompts
    late: int = 0  # gaps that were longer than is promised

    @property
    def ended(self) -> bool:
        return self.tokens >= self.job.answer

    @property
    def tpot(self) -> float:
        """Of each token but the first."""
        assert self.first is not None
        assert self.last is not None
        return (self.last - self.first) / (self.tokens - 1)


class Replica:
    """An engine, from when it is ready."""

    def __init__(
        self, number: int, asked: float, ready: float, scheduling: Scheduling, pace: Speed, gap: float, *, watched: bool
    ) -> None:
        """``gap``: the longest between two tokens that is promised. ``watched``: with a core beside it."""
        self.number, self.asked, self.ready = number, asked, ready
        self.leaving = False
        self.gone: float | None = None
        self.rank = Rank(scheduling, pace, random.Random(f"replica {number}"))
        self.in_flight: dict[str, Served] = {}
        self._gap = gap
        self._told = self._logged = 0
        self.beside = _Beside(self.rank, number) if watched else None

    def takes(self, served: Served) -> None:
        self.in_flight[served.job.name] = served
        self.rank.arrives(served.job)
        if self.beside is not None:
            self.beside.records.append((served.sent, served, 0))

    def go_on(self, until: float) -> tuple[list[Served], list[Served]]:
        """Whose first and whose last token was made by then."""
        rank, begun, ended = self.rank, [], []
        rank.go_on(until)
        for step in rank.steps[self._logged :]:
            for name in step.prompts:
                self.in_flight[name].begun = self.in_flight[name].begun or step.start
        self._logged = len(rank.steps)
        while self._told < len(rank.tokens) and rank.tokens[self._told].made <= until:
            token = rank.tokens[self._told]
            self._told += 1
            served = self.in_flight[token.sequence.job.name]
            served.tokens += 1
            if served.first is None or served.last is None:
                served.first = token.made
                begun.append(served)
            else:
                served.clear += rank.steps[token.step].clear
                served.late += token.made - served.last > self._gap
            served.last = token.made
            if self.beside is not None:
                self.beside.records.append((token.made + DELIVERED, served, served.tokens))
            if served.ended:
                del self.in_flight[served.job.name]
                ended.append(served)
        if self.beside is not None:
            self.beside.go_on(until)
        return begun, ended

    @property
    def waiting(self) -> int:
        return self.rank.states[-1].waiting if self.rank.states else 0


class _Beside:
    """A core of ours, told what a relay in front of this engine would read."""

    def __init__(self, rank: Rank, number: int) -> None:
        self.observed = Observed()
        #: When, of which request, and the number of its token; 0: the request itself.
        self.records: list[tuple[float, Served, int]] = []
        self._rank = rank
        self._shape = Shape("one of a fleet", rank.scheduling)
        self._relay = Relay(self.observed)
        self._rng = random.Random(f"beside {number}")
        self._streams: dict[str, int] = {}
        self._beat: float | None = None
        self._page = 0.0

    def go_on(self, until: float) -> None:
        """In order of time; what is later waits for its turn."""
        self.records.sort(key=lambda record: record[0])
        taken = 0
        for at, served, token in self.records:
            if at > until:
                break
            self._moments(at)
            taken += 1
            if token:
                self._answer(at, served.job, token)
            else:
                body = wire.body_of(served.job, _CHARACTERS_PER_TOKEN, self._rng)
                name = served.job.name
                self._streams[name] = self._relay.request(at, body, wire.path_of(served.job), request_id=name)
        del self.records[:taken]
        self._moments(until)

    def _answer(self, at: float, job: Job, token: int) -> None:
        stream, data = self._streams[job.name], b""
        if token == 1:
            self._relay.response(at, stream)
            data = wire.opener(job, 0)
        self._relay.data(at, stream, data + wire.event(job, wire.words(1, self._rng), 0, token == job.answer))
        if token == job.answer:
            self._relay.data(at, stream, wire.ends(job))
            self._relay.end(at, self._streams.pop(job.name))

    def _moments(self, until: float) -> None:
        """The process's own: what was read is worked through, and the engine's page is asked for."""
        if self._beat is None:
            self._beat, self._page = until, until
        while self._beat <= until:
            self._relay.flush()
            self.observed.now_ms = self._beat
            if self._page <= self._beat:
                page = server_page.page(self._shape, [self._rank], Hardships(), self._beat)
                self.observed.feed(Page(read_page(page), server_page.EPOCH))
                self._page += _PAGE
            self.observed.observation.beat()
            self._beat += _BEAT


class Fleet:
    """Replicas that come and go, and the router, which sends each request where the fewest are in flight."""

    def __init__(
        self, scheduling: Scheduling, pace: Speed, replicas: int, *, gap: float, cold_start: float, watched: bool
    ) -> None:
        self.scheduling = scheduling
        self.served: list[Served] = []
        self.first_tokens: list[tuple[float, float]] = []  # when, and after how long
        self.answers: list[tuple[float, float]] = []  # when, and how long for each of its tokens but the first
        self.replicas: list[Replica] = []
        self.now = 0.0
        self._pace, self._gap, self._cold_start, self._watched = pace, gap, cold_start, watched
        for _ in range(replicas):
            self._add(0.0)

    def _add(self, ready: float) -> None:
        self.replicas.append(
            Replica(len(self.replicas), self.now, ready, self.scheduling, self._pace, self._gap, watched=self._watched)
        )

    @property
    def provisioned(self) -> list[Replica]:
        """Those that are wanted, ready or not."""
        return [each for each in self.replicas if not each.leaving]

    @property
    def ready(self) -> list[Replica]:
        return [each for each in self.provisioned if each.ready <= self.now]

    def scale(self, replicas: int) -> None:
        """Who is not ready yet goes first, then who came last; nobody is cut off."""
        while len(self.provisioned) < replicas:
            self._add(self.now + self._cold_start)
        while len(self.provisioned) > replicas:
            self.provisioned[-1].leaving = True

    def send(self, job: Job) -> None:
        self.go_on(job.arrives)
        served = Served(job, job.arrives)
        job.arrives += TAKEN
        self.served.append(served)
        min(self.ready, key=lambda each: len(each.in_flight)).takes(served)

    def go_on(self, until: float) -> None:
        if until <= self.now:
            return
        self.now = until
        for replica in self.replicas:
            if replica.gone is None and replica.ready <= until:
                begun, ended = replica.go_on(until)
                self.first_tokens += [(each.first, each.first - each.sent) for each in begun if each.first is not None]
                self.answers += [(each.last, each.tpot) for each in ended if each.last is not None and each.tokens > 1]
            if replica.gone is None and replica.leaving and not replica.in_flight:
                replica.gone = until

    @property
    def in_flight(self) -> int:
        return sum(len(each.in_flight) for each in self.replicas)

    def set(self, scheduling: Scheduling) -> None:
        """All at once; what it costs to start engines anew is not played."""
        self.scheduling = scheduling
        for each in self.replicas:
            each.rank.scheduling = scheduling

    def paid_for(self, until: float) -> float:
        """Milliseconds of replicas."""
        return sum((until if each.gone is None else min(each.gone, until)) - each.asked for each in self.replicas)
