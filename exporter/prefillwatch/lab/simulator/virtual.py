"""Runs the engine model in virtual time: a list of requests in, token read times and the true step log out."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prefillwatch.lab.simulator.engine import Engine, SimRequest, StepRecord


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that reaches the engine at `at_ns`; its client goes away at `abort_ns` if it is still there."""

    at_ns: int
    request: SimRequest
    abort_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """A standstill of the engine: the first step that starts at or after `at_ns` takes `duration_ns` longer."""

    at_ns: int
    duration_ns: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """How the tokens of a step reach a reader: a while after it, one stream after the other, first tokens last."""

    after_step_ns: int = 0
    per_stream_ns: int = 0
    first_token_ns: int = 0

    def reads(self, record: StepRecord) -> Iterable[tuple[str, int]]:
        """(request id, read time) for every token that the step produced."""
        decoding = set(record.decode)
        now = record.end_ns + self.after_step_ns
        for position, request_id in enumerate(sorted(record.produced, key=lambda r: r not in decoding)):
            late = 0 if request_id in decoding else self.first_token_ns
            yield request_id, now + position * self.per_stream_ns + late


@dataclass(slots=True)
class VirtualRun:
    """What the wire shows (`sent_ns`, `reads_ns`, `closed_ns`) and what the engine really did (`steps`)."""

    steps: list[StepRecord] = field(default_factory=list)
    requests: dict[str, SimRequest] = field(default_factory=dict)
    sent_ns: dict[str, int] = field(default_factory=dict)
    reads_ns: dict[str, list[int]] = field(default_factory=dict)
    #: When a request ended: its last read, or the moment its client went away.
    closed_ns: dict[str, int] = field(default_factory=dict)
    #: "stop", "length" or "abort"; absent while a request runs on.
    outcome: dict[str, str] = field(default_factory=dict)

    def gaps_ns(self, request_id: str) -> list[int]:
        """Inter-token latencies of a request."""
        reads = self.reads_ns[request_id]
        return [later - earlier for earlier, later in itertools.pairwise(reads)]

    def events(self) -> list[tuple[int, str, str]]:
        """All that happened on the wire as (time, "sent" | "token" | "closed", request id), in order of time."""
        order = {"sent": 0, "token": 1, "closed": 2}
        happened = [(at, "sent", rid) for rid, at in self.sent_ns.items()]
        happened += [(at, "token", rid) for rid, reads in self.reads_ns.items() for at in reads]
        happened += [(at, "closed", rid) for rid, at in self.closed_ns.items()]
        return sorted(happened, key=lambda event: (event[0], order[event[1]]))


def run_virtual(
    engine: Engine,
    arrivals: Iterable[Arrival],
    *,
    pauses: Iterable[Pause] = (),
    delivery: Delivery | None = None,
    until_ns: int | None = None,
) -> VirtualRun:
    """Plays `arrivals` through the engine until all have ended, or until a step would start at or after `until_ns`."""
    return _Play(engine, arrivals, pauses, delivery or Delivery()).run(until_ns)


class _Play:
    def __init__(
        self, engine: Engine, arrivals: Iterable[Arrival], pauses: Iterable[Pause], delivery: Delivery
    ) -> None:
        self._engine = engine
        self._arrivals = deque(sorted(arrivals, key=lambda a: a.at_ns))
        self._aborts = deque(sorted((a.abort_ns, a.request.id) for a in self._arrivals if a.abort_ns is not None))
        self._pauses = deque(sorted(pauses, key=lambda p: p.at_ns))
        self._delivery = delivery
        self._run = VirtualRun()

    def run(self, until_ns: int | None) -> VirtualRun:
        now = 0
        while until_ns is None or now < until_ns:
            self._happen(now)
            record = self._engine.step(now)
            if record is not None:
                self._deliver(record)
                now = record.end_ns
            elif self._arrivals:
                now = max(now, self._arrivals[0].at_ns)
            else:
                break
        return self._run

    def _happen(self, now: int) -> None:
        while self._arrivals and self._arrivals[0].at_ns <= now:
            arrival = self._arrivals.popleft()
            self._engine.submit(arrival.request)
            self._run.requests[arrival.request.id] = arrival.request
            self._run.sent_ns[arrival.request.id] = arrival.at_ns
            self._run.reads_ns[arrival.request.id] = []
        while self._aborts and self._aborts[0][0] <= now:
            self._abort(*self._aborts.popleft())
        while self._pauses and self._pauses[0].at_ns <= now:
            self._engine.pause(self._pauses.popleft().duration_ns)

    def _abort(self, at_ns: int, request_id: str) -> None:
        self._engine.abort(request_id)
        closed_ns = self._run.closed_ns.get(request_id)
        if closed_ns is not None and closed_ns <= at_ns:
            return
        self._run.closed_ns[request_id] = at_ns
        self._run.outcome[request_id] = "abort"
        reads = self._run.reads_ns[request_id]
        while reads and reads[-1] > at_ns:  # of a step that ended after the client had gone
            reads.pop()

    def _deliver(self, record: StepRecord) -> None:
        self._run.steps.append(record)
        for request_id, at_ns in self._delivery.reads(record):
            self._run.reads_ns[request_id].append(at_ns)
        for request_id, reason in record.finished.items():
            self._run.outcome[request_id] = reason
            self._run.closed_ns[request_id] = self._run.reads_ns[request_id][-1]
