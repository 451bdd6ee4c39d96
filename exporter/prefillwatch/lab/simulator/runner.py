"""Runs the engine model in real time: a step ends when the cost model says so, and its tokens then go to sinks."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from prefillwatch.lab.simulator.metrics import EngineMetrics, RequestTimes
from prefillwatch.units import NS

if TYPE_CHECKING:
    from prefillwatch.lab.simulator.engine import Engine, SimRequest, StepRecord

#: Steps follow each other at absolute times, so that a timer that fires late costs nothing. Only a delay longer than
#: this is lost for good: a process that was stopped or starved must not make up for it with a burst of tokens.
MAX_CATCH_UP_NS: Final = 10_000_000


class Sink(Protocol):
    """Where a sequence's tokens go."""

    def admitted(self, cached_tokens: int) -> None:
        """The sequence left the waiting queue; the prefix cache held this many of its prompt tokens."""

    def token(self, finish_reason: str | None) -> None:
        """One more token exists; with a reason it is the last."""


@dataclass(slots=True)
class _Live:
    request: SimRequest
    sink: Sink
    n: int
    times: RequestTimes


class EngineLoop:
    """One engine on the running event loop."""

    def __init__(self, engine: Engine, metrics: EngineMetrics) -> None:
        self._engine = engine
        self._metrics = metrics
        self._live: dict[str, _Live] = {}
        self._record: StepRecord | None = None
        self._timer: asyncio.Handle | None = None

    def submit(self, request: SimRequest, sink: Sink, n: int = 1) -> None:
        """Queues a sequence, one of `n` of its request. Raises ValueError as `Engine.submit` does."""
        self._engine.submit(request)
        self._live[request.id] = _Live(request, sink, n, RequestTimes(time.monotonic_ns()))
        if self._timer is None:
            # In the next turn, so that all sequences of a request are there when the step is put together.
            self._timer = asyncio.get_running_loop().call_soon(self._wake)

    def abort(self, request_id: str) -> None:
        """Forgets a sequence whose reader has gone; its blocks are free for the next step."""
        if self._live.pop(request_id, None) is not None:
            self._engine.abort(request_id)
            self._metrics.aborted()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        self._start(time.monotonic_ns())

    def _start(self, now_ns: int) -> None:
        self._timer = None
        self._record = record = self._engine.step(now_ns)
        if record is None:
            self._metrics.idle(self._engine.blocks.usage, self._engine.waiting)
            return
        delay = (record.end_ns - time.monotonic_ns()) / NS
        self._timer = asyncio.get_running_loop().call_later(max(0.0, delay), self._end)

    def _end(self) -> None:
        record = self._record
        assert record is not None
        late_ns = time.monotonic_ns() - record.end_ns
        self._deliver(record)
        if late_ns > MAX_CATCH_UP_NS:
            self._metrics.late(late_ns / NS)
            self._start(time.monotonic_ns())
        else:
            self._start(record.end_ns)

    def _deliver(self, record: StepRecord) -> None:
        self._metrics.step(record)
        for request_id in record.preempted:
            if request_id in self._live:
                self._live[request_id].times.preemptions += 1
        for request_id, cached in record.admitted.items():
            self._admitted(request_id, cached, record.start_ns)
        for request_id in record.produced:
            live = self._live.get(request_id)
            if live is not None:
                self._produced(live, record.end_ns, record.finished.get(request_id))

    def _admitted(self, request_id: str, cached: int, at_ns: int) -> None:
        live = self._live.get(request_id)
        if live is None or live.times.scheduled_ns:
            return
        live.times.scheduled_ns = at_ns
        live.times.cached = cached
        self._metrics.admitted(live.request, cached)
        live.sink.admitted(cached)

    def _produced(self, live: _Live, at_ns: int, finish_reason: str | None) -> None:
        times = live.times
        times.produced += 1
        if times.produced == 1:
            times.first_ns = at_ns
            self._metrics.first_token(live.request, times)
        else:
            self._metrics.next_token(at_ns - times.last_ns)
        times.last_ns = at_ns
        if finish_reason is not None:
            del self._live[live.request.id]
            self._metrics.finished(live.request, times, finish_reason, live.n)
        live.sink.token(finish_reason)
