"""Facts become figures: each is written to the sink, and into the windows of its model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from prefillwatch.analysis.arrays import FloatArray, IntArray, by_value
from prefillwatch.analysis.cost import Costs, StepSample
from prefillwatch.analysis.facts import Sink
from prefillwatch.analysis.model_books import Models
from prefillwatch.analysis.requests import LOST, PromptBuckets, Request
from prefillwatch.analysis.steps import StepFacts
from prefillwatch.analysis.tokens import Gaps
from prefillwatch.analysis.tuning import DEFAULT, GapRules
from prefillwatch.units import NS
from prefillwatch.wire.routes import LOOKS


class Figures:
    """``models`` are the books of each model."""

    def __init__(
        self, models: Models, costs: Costs, buckets: PromptBuckets, sink: Sink, rules: GapRules = DEFAULT.gaps
    ) -> None:
        self._size_patience_ns = rules.size_patience_ns
        self._models = models
        self._costs = costs
        self._buckets = buckets
        self._sink = sink
        self._unsized: dict[int, Request] = {}  # had a first token, but the size of the prompt is not sure yet
        self._decoding: dict[int, int] = {}  # streams by model
        self._overcounted: dict[int, int] = {}  # tokens by model

    def forget_model(self, model: int) -> None:
        """The number goes to another model: nothing of the old one stays."""
        self._models.pop(model, None)
        self._costs.forget_model(model)
        self._overcounted.pop(model, None)

    def advance(self, now_ns: int) -> None:
        until_ns = now_ns - self._size_patience_ns
        for request in [late for late in self._unsized.values() if late.first_ns < until_ns]:
            self.prompt(request, now_ns)
        for books in self._models.values():
            books.advance(now_ns)
            books.concurrency.settle(now_ns)

    # --- Prompts ---

    def first_token(self, request: Request, time_ns: int, *, sure: bool) -> None:
        """TTFT is counted by the size of the prompt, so it waits a while where that is not ``sure``."""
        if sure:
            self.prompt(request, time_ns)
        else:
            self._unsized[request.rid] = request

    def prompt(self, request: Request, now_ns: int) -> None:
        """The size of a prompt is as sure as it will be. Counted once per request."""
        self._unsized.pop(request.rid, None)
        if request.prompt_counted:
            return
        request.prompt_counted = True
        books, bucket = self._models[request.model], self._buckets.bucket(request.prompt_tokens)
        books.prompts.add(float(request.prompt_tokens), now_ns)
        if request.first_ns and request.received_ns:
            seconds = (request.first_ns - request.received_ns) / NS
            books.first_token(bucket, seconds, now_ns)
            self._sink.first_token(request.model, bucket, seconds, request)

    def split(self, request: Request, queue_ns: float, prefill_ns: float) -> None:
        bucket = self._buckets.bucket(request.prompt_tokens)
        self._sink.split(request.model, bucket, queue_ns / NS, prefill_ns / NS)

    # --- Tokens and gaps ---

    def decoding(self, model: int, by: int, time_ns: int) -> None:
        """So many streams of the model began, or ended if negative."""
        self._decoding[model] = self._decoding.get(model, 0) + by
        meter = self._models[model].concurrency
        if by > 0:
            meter.begun(time_ns, by)
        else:
            meter.ended(time_ns, -by)

    def token_times(self, model: int, times_ns: IntArray, counts: IntArray) -> None:
        """When reads came, and with how many token events each."""
        self._models[model].concurrency.tokens(times_ns, counts)

    def tokens(self, generated: Mapping[int, int], coalesced: Mapping[int, int]) -> None:
        """Token events by model. Where usage came to fewer tokens than there were events, later events make up for it:
        counters never fall."""
        for model, events in generated.items():
            over = self._overcounted.get(model, 0)
            if over:
                self._overcounted[model] = max(over - events, 0)
            self._sink.tokens(model, max(events - over, 0), coalesced.get(model, 0))

    def tokens_per_event(self, model: int, tokens: float, events: int) -> None:
        """Usage reported how many tokens the events of a read carried."""
        self._sink.tokens_per_event(model, tokens, events)

    def gaps_ended(self, model: int, gaps: Gaps) -> None:
        """All of one model."""
        self._models[model].all_gaps.add_many((gaps.end_ns - gaps.start_ns) / NS, int(gaps.end_ns.max()))

    def gaps_judged(self, model: int, seconds: FloatArray, in_service: IntArray, lagged: int, now_ns: int) -> None:
        """Gaps of one model whose population is known. ``in_service``: size of the largest prompt during each; so many
        of them lagged by our own fault."""
        books = self._models[model]
        self._sink.lagged(model, lagged)
        books.judged(seconds, in_service, now_ns)
        books.correlation.add(now_ns // NS, float(seconds.max()), max(0, int(in_service.max())))

    def gaps_final(self, model: int, bucket: IntArray, seconds: FloatArray) -> None:
        """Gaps of one model with the bucket of the largest prompt during each."""
        for number, same in by_value(bucket):
            self._sink.gaps(model, number, seconds[same])

    def long_gap(self, model: int, bucket: int, seconds: float, request: Request, ended_ns: int) -> None:
        """Whose a long gap was."""
        self._sink.long_gap(model, bucket, seconds, request, ended_ns)

    # --- Steps ---

    @property
    def busiest(self) -> int:
        """The model that most streams are of."""
        return max(self._decoding, key=self._decoding.__getitem__, default=0)

    def steps(self, facts: Iterable[StepFacts]) -> None:
        """Final steps. Where nobody decodes, a step is made up from first tokens and its length is not measured. A step
        serves all models of the server together; it is booked under the one that most streams are of."""
        facts = list(facts)
        self._costs.saw(max((step.largest for step in facts), default=0))
        steps = [step for step in facts if step.observed]
        if not steps:
            return
        model = self.busiest
        samples = [
            StepSample(step.end_ns, step.end_ns - step.start_ns, step.excess_ns, step.prefill_tokens, step.largest)
            for step in steps
        ]
        self._costs.add(model, samples)
        tokens = np.array([step.tokens for step in samples], np.int64)
        seconds = np.array([step.took_ns for step in samples], np.float64) / NS
        self._sink.steps(model, tokens, seconds)

    # --- Ends ---

    def ended(self, request: Request, time_ns: int, outcome: str) -> None:
        """The exchange is over. With the outcome `LOST` its end is not known, and it counts as no request; neither does
        a look at upstream's metrics or health."""
        if request.generating and request.sent_ns:
            self.prompt(request, time_ns)
            self._sink.prompt(request.model, request.prompt_tokens, request.cached_tokens)
        if request.generated is not None:
            # Usage is the truth about generated tokens; until it came, one per token event was counted.
            missing = request.generated - request.events
            if missing > 0:
                self._sink.tokens(request.model, missing, 0)
            elif missing < 0:
                self._overcounted[request.model] = self._overcounted.get(request.model, 0) - missing
            if request.events and not request.events_reported:
                self._sink.tokens_per_event(request.model, request.generated / request.events, request.events)
        if outcome != LOST and request.endpoint not in LOOKS:
            self._models[request.model].concurrency.finished(time_ns)
            self._sink.finished(request.model, request.endpoint, outcome, request, time_ns)
