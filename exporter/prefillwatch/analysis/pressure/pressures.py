"""The pressures of all models of a server, and the forecasts of its prompts: what the ledger tells this room."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from prefillwatch.analysis.cost import Costs
from prefillwatch.analysis.engines import Engines
from prefillwatch.analysis.facts import Sink
from prefillwatch.analysis.pressure.forecast import Forecast, Forecaster
from prefillwatch.analysis.pressure.formula import first_token_promise, most_queued_tokens
from prefillwatch.analysis.pressure.gauge import PressureGauge, StepShare
from prefillwatch.analysis.requests import Request
from prefillwatch.analysis.settings import Slo
from prefillwatch.analysis.steps import StepFacts
from prefillwatch.analysis.tuning import DEFAULT, Tuning
from prefillwatch.units import NS

#: Requests with a first token whose time is not split yet, that are remembered; a bound on memory.
_MOST_UNSPLIT: Final = 4096


class Pressures:
    """Answers that are not streamed show no first token, and are left out."""

    def __init__(
        self,
        slo: Slo,
        costs: Costs,
        engines: Engines,
        sink: Sink,
        tuning: Tuning = DEFAULT,
    ) -> None:
        self._slo = slo
        self._costs = costs
        self._timeline = engines.timeline
        self._sink = sink
        self._rules = tuning.pressure
        self._worst_fit = tuning.advice.worst_fit
        self._engines = engines
        self._forecaster = Forecaster(costs, engines, tuning.pressure)
        self._models: dict[int, PressureGauge] = {}
        self._held_up: dict[int, float] = {}
        """Of requests whose time to first token is not split yet."""
        self._busiest = 0

    def forget_model(self, model: int) -> None:
        """The number goes to another model."""
        self._models.pop(model, None)

    def sent(self, request: Request, time_ns: int) -> None:
        """A prompt that makes tokens went upstream."""
        if request.shows_first and request.prompts == 1:
            uncached = max(1, request.uncached_tokens)
            held_up = self._forecaster.sent(request.rid, self._busiest, request.prompt_tokens, uncached, time_ns)
            self._of(request.model).sent(held_up)

    def first_token(self, request: Request, time_ns: int) -> None:
        """Its first token was read."""
        check = self._forecaster.first_token(request.rid, time_ns)
        if check is None:
            return
        self._of(request.model).not_waiting(check.held_up)
        if check.held_up:
            self._held_up[request.rid] = check.held_up
            if len(self._held_up) > _MOST_UNSPLIT:
                del self._held_up[next(iter(self._held_up))]
        if check.ratio is not None:
            self._sink.forecast(check.ratio)

    def gone(self, request: Request) -> None:
        """It does not wait any more, and its first token was not seen."""
        check = self._forecaster.gone(request.rid)
        if check is not None:
            self._of(request.model).not_waiting(check.held_up)

    def split(self, request: Request, queue_ns: float, prefill_ns: float) -> None:
        """Its time to first token is known in its parts."""
        own_s = request.ttft_target_ns / NS
        promise_s = own_s or first_token_promise(self._slo, request.prompt_tokens)
        held_up = self._held_up.pop(request.rid, 0.0)
        self._of(request.model).served(
            queue_ns / NS,
            prefill_ns / NS,
            promise_s,
            held_up,
            tokens=request.prompt_tokens,
            uncached=request.uncached_tokens,
        )

    def steps(self, model: int, facts: Iterable[StepFacts]) -> None:
        """Final steps; they count for the model that most streams are of."""
        self._busiest = model
        engine = self._timeline.engine
        gauge = self._of(model)
        for step in facts:
            tokens = step.prefill_tokens
            explained_ns = self._costs.slack * self._costs.expected_ns(tokens) if tokens else 0.0
            gauge.step(
                StepShare(
                    (step.end_ns - step.start_ns) / NS,
                    step.clear_ns / NS,
                    step.decoders if step.observed else 0,
                    tokens,
                    explained_ns / NS or math.inf,
                    max(0, engine.budget - step.decoders) if engine.proven and engine.chunked else 0,
                )
            )

    def advance(self, now_ns: int) -> None:
        self._forecaster.advance()
        for gauge in self._models.values():
            gauge.advance(now_ns)

    # --- What comes of it ---

    def __iter__(self) -> Iterator[tuple[int, PressureGauge]]:
        """By model."""
        return iter(self._models.items())

    def forecast(self, tokens: int, cached: int, now_ns: int) -> Forecast | None:
        """Of a prompt that might come; None: nothing is known of such yet."""
        return self._forecaster.forecast(self._busiest, tokens, cached, now_ns)

    def most_queued_tokens(self, model: int) -> int | None:
        """What is advised for the limit of that name; None: too little is known, or it varies too much."""
        gauge, law = self._models.get(model), self._costs.line(model)
        if gauge is None or law is None or law.fit < self._worst_fit:
            return None
        engine, decoding = self._timeline.engine, self._engines.decoding
        per_step = max(law.largest, engine.budget - decoding if engine.chunked else 0)
        return most_queued_tokens(gauge.prompts, per_step / (law.step_ns(per_step) / NS))

    @property
    def steps_seen(self) -> int:
        """Steps with prompts that forecasts are made from."""
        return self._costs.steps_seen(self._busiest)

    def _of(self, model: int) -> PressureGauge:
        gauge = self._models.get(model)
        if gauge is None:
            gauge = self._models[model] = PressureGauge(self._slo, self._rules)
        return gauge
