"""Facts of the ledger become metrics: the one place where model numbers and buckets turn into label values."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import numpy as np

from prefillwatch.analysis.arrays import FloatArray, IntArray
from prefillwatch.analysis.delays import FREEZE, Incident, Stall
from prefillwatch.analysis.requests import NONE, ModelNames, PromptBuckets, Request
from prefillwatch.contract.buckets import STEP_BUCKETS, STEP_EDGES
from prefillwatch.contract.causes import PREFILL
from prefillwatch.core.exchange import Exchange
from prefillwatch.core.view import IncidentNow, incident_now
from prefillwatch.export import table
from prefillwatch.export.registry import Registry
from prefillwatch.observer.metrics.exemplars import Exemplars
from prefillwatch.observer.metrics.standard import StandardHistograms
from prefillwatch.units import NS
from prefillwatch.wire.tap import End, Finish

#: Ends of exchanges that are our doing; of a client only where a reason is given.
_OURS: Final = frozenset((Finish.REJECTED, Finish.CLIENT_CLOSED, Finish.CUT))

log = logging.getLogger(__name__)


class Publisher:
    """Implements `core.core.CoreSink` on a metric registry."""

    def __init__(
        self,
        registry: Registry,
        names: ModelNames,
        buckets: PromptBuckets,
        incident_over: Callable[[IncidentNow], None] = lambda _: None,
        exemplars: Exemplars | None = None,
        standard: StandardHistograms | None = None,
    ) -> None:
        #: Hears of gaps, in seconds, and whether a prompt was in service during them.
        self.gaps_heard: Callable[[FloatArray, bool], None] | None = None
        self._registry = registry
        self._names = names
        self._incident_over = incident_over
        self._exemplars = exemplars
        self._standard = standard
        self._prompt_labels = buckets.labels
        self._bucket_labels = buckets.labels_with_none
        self._gaps = registry.histogram(table.INTER_TOKEN_LATENCY)
        self._generated = registry.counter(table.GENERATED_TOKENS)
        self._coalesced = registry.counter(table.COALESCED_TOKENS)
        self._lagged = registry.counter(table.LAGGED_GAPS)
        self._tokens_per_event = registry.histogram(table.TOKENS_PER_EVENT)
        self._ttft = registry.histogram(table.TIME_TO_FIRST_TOKEN)
        self._queue = registry.histogram(table.QUEUE)
        self._forecasts = registry.histogram(table.FORECAST)
        self._prefill = registry.histogram(table.PREFILL)
        self._prompt_length = registry.histogram(table.PROMPT_LENGTH)
        self._prompt_tokens = registry.counter(table.PROMPT_TOKENS)
        self._cached_tokens = registry.counter(table.CACHED_PROMPT_TOKENS)
        self._steps = registry.histogram(table.STEP_TIME)
        self._requests = registry.counter(table.REQUESTS)
        self._tpot = registry.histogram(table.TIME_PER_OUTPUT_TOKEN)
        self._deadlines = registry.counter(table.TOKEN_DEADLINES)
        self._misses = registry.counter(table.TOKEN_DEADLINE_MISSES)
        self._stalls = registry.counter(table.STALLS)
        self._stall_seconds = registry.counter(table.STALL_SECONDS)
        self._blame = registry.counter(table.PREFILL_BLAME)
        self._freezes = registry.counter(table.FREEZES)
        self._freeze_seconds = registry.counter(table.FREEZE_SECONDS)
        self._waits = registry.counter(table.WAITS)
        self._within_slo = registry.counter(table.REQUESTS_WITHIN_SLO)
        self._packet_age = registry.histogram(table.OBSERVER_DELAY).child()
        self._unreachable = registry.counter(table.UPSTREAM_UNREACHABLE)
        self._truncated = registry.counter(table.UPSTREAM_TRUNCATED)
        self._refused = registry.counter(table.REFUSED_REQUESTS)
        self._unparsed = registry.counter(table.UNPARSED_EVENTS)

    def _model(self, number: int) -> str:
        return self._names.label(number)

    def _start_at_zero(self, model: str) -> None:
        """A counter that appears with its first stall has no 0 before it, and so for Prometheus no increase: one rare
        freeze would be none."""
        for spec in (table.STALLS, table.STALL_SECONDS, table.FREEZES, table.FREEZE_SECONDS, table.WAITS):
            self._registry.precreate(spec, model=model)
        for bucket in self._prompt_labels:
            self._blame.add((model, bucket), 0.0)

    def gaps(self, model: int, concurrent_bucket: int, seconds: FloatArray) -> None:
        if (self._model(model), PREFILL) not in self._stalls:
            self._start_at_zero(self._model(model))
        self._gaps.observe_many((self._model(model), self._bucket_labels[concurrent_bucket]), seconds)
        if self.gaps_heard is not None:
            self.gaps_heard(seconds, concurrent_bucket != NONE)

    def tokens(self, model: int, generated: int, coalesced: int) -> None:
        labels = (self._model(model),)
        self._generated.add(labels, generated)
        self._coalesced.add(labels, coalesced)

    def lagged(self, model: int, gaps: int) -> None:
        self._lagged.add((self._model(model),), gaps)

    def tokens_per_event(self, model: int, tokens: float, events: int) -> None:
        self._tokens_per_event.child((self._model(model),)).observe(tokens, events)

    def long_gap(self, model: int, concurrent_bucket: int, seconds: float, request: Request, ended_ns: int) -> None:
        if self._exemplars is not None:
            child = self._gaps.child((self._model(model), self._bucket_labels[concurrent_bucket]))
            self._exemplars.note(child, seconds, request, ended_ns)

    def first_token(self, model: int, bucket: int, seconds: float, request: Request) -> None:
        child = self._ttft.child((self._model(model), self._bucket_labels[bucket]))
        child.observe(seconds)
        if self._exemplars is not None and seconds >= self._exemplars.late_s:
            self._exemplars.note(child, seconds, request, request.first_ns)
        if self._standard is not None:
            self._standard.first_token(self._model(model), request.endpoint, seconds)

    def forecast(self, ratio: float) -> None:
        self._forecasts.observe((), ratio)

    def split(self, model: int, bucket: int, queue_seconds: float, prefill_seconds: float) -> None:
        labels = (self._model(model), self._bucket_labels[bucket])
        self._queue.observe(labels, queue_seconds)
        self._prefill.observe(labels, prefill_seconds)

    def prompt(self, model: int, tokens: int, cached: int) -> None:
        labels = (self._model(model),)
        self._prompt_length.observe(labels, float(tokens))
        self._prompt_tokens.add(labels, tokens)
        self._cached_tokens.add(labels, cached)

    def steps(self, model: int, prefill_tokens: IntArray, seconds: FloatArray) -> None:
        bucket = np.searchsorted(STEP_EDGES, prefill_tokens, side="left")
        for number in set(bucket.tolist()):
            self._steps.observe_many((self._model(model), STEP_BUCKETS[number]), seconds[bucket == number])

    def finished(self, model: int, endpoint: str, outcome: str, request: Request, ended_ns: int) -> None:
        self._requests.add((self._model(model), endpoint, outcome))
        if self._standard is not None and request.generating and request.received_ns:
            seconds = (ended_ns - request.received_ns) / NS
            self._standard.duration(self._model(model), endpoint, outcome, seconds)

    def tpot(self, model: int, seconds: float, request: Request) -> None:
        self._tpot.observe((self._model(model),), seconds)
        if self._standard is not None:
            self._standard.per_token(self._model(model), request.endpoint, seconds)

    def deadlines(self, model: int, due: int, missed: int) -> None:
        self._deadlines.add((self._model(model),), due)
        self._misses.add((self._model(model),), missed)

    def within_slo(self, model: int) -> None:
        self._within_slo.add((self._model(model),))

    def stall(self, stall: Stall) -> None:
        labels = (self._model(stall.model), stall.cause)
        self._stalls.add(labels)
        self._stall_seconds.add(labels, stall.excess_ns / NS)

    def blame(self, model: int, bucket: int, seconds: float) -> None:
        self._blame.add((self._model(model), self._bucket_labels[bucket]), seconds)

    def incident(self, incident: Incident) -> None:
        labels = (self._model(incident.model), incident.cause)
        if incident.kind == FREEZE:
            self._freezes.add(labels)
            self._freeze_seconds.add(labels, (incident.ended_ns - incident.started_ns) / NS)
        else:
            self._waits.add(labels)
        self._incident_over(incident_now(incident, self._names.labels, incident.ended_ns, ongoing=False))

    def exchange_ended(self, exchange: Exchange, end: End) -> None:
        if end.finish is Finish.UPSTREAM_UNREACHABLE:
            self._unreachable.add((end.reason,))
        elif end.finish is Finish.UPSTREAM_TRUNCATED and end.reason:
            self._truncated.add((end.reason,))
        elif end.finish in _OURS and end.reason:
            self._refused.add((end.reason,))
        for reason, count in exchange.unparsed().items():
            self._unparsed.add((reason,), count)
        for fault in exchange.faults():
            log.error("an error of prefillwatch cost the figures of one request: %s; please report it", fault)

    def packet_taken(self, age_s: float) -> None:
        self._packet_age.observe(age_s)

    def model_forgotten(self, label: str) -> None:
        self._registry.forget("model", label)
        if self._standard is not None:
            self._standard.forget_model(label)
