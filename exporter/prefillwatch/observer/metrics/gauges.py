"""What is true of each model now, as metrics: windows, open gaps, requests in prefill, throughput, cost."""

from __future__ import annotations

from collections.abc import Iterable

from prefillwatch.core.view import ModelAdvice, ModelFigures, ModelLoad, ModelPressure, View
from prefillwatch.export import table
from prefillwatch.export.registry import Labels, Registry
from prefillwatch.export.spec import Spec, window_name

Values = dict[Labels, float | None]


def publish_models(registry: Registry, view: View) -> None:
    """A gauge without a value is absent, never 0."""
    for values in (_windows(view.figures), _in_flight(view.load), _costs(view.advice), _pressures(view.pressures)):
        for spec, of_spec in values.items():
            registry.gauge(spec).replace(of_spec)
    _concurrency(registry, view.figures)


def _windows(models: Iterable[ModelFigures]) -> dict[Spec, Values]:
    p50: Values = {}
    p99: Values = {}
    longest: Values = {}
    ttft: Values = {}
    prompts: Values = {}
    interference: Values = {}
    correlation: Values = {}
    for each in models:
        model = each.model
        for (seconds, population), gaps in each.gaps.items():
            labels = (model, window_name(seconds), population)
            p50[labels], p99[labels], longest[labels] = gaps.p50_s, gaps.p99_s, gaps.longest_s
        for (seconds, bucket), value in each.first_token_p99_s.items():
            ttft[(model, window_name(seconds), bucket)] = value
        for values, given in (
            (prompts, each.longest_prompt),
            (interference, each.interference),
            (correlation, each.correlation),
        ):
            values.update({(model, window_name(seconds)): value for seconds, value in given.items()})
    return {
        table.INTER_TOKEN_LATENCY_P50: p50,
        table.INTER_TOKEN_LATENCY_P99: p99,
        table.INTER_TOKEN_LATENCY_MAX: longest,
        table.TIME_TO_FIRST_TOKEN_P99: ttft,
        table.PROMPT_LENGTH_MAX: prompts,
        table.INTERFERENCE: interference,
        table.PROMPT_ITL_CORRELATION: correlation,
    }


def _in_flight(models: Iterable[ModelLoad]) -> dict[Spec, Values]:
    return {
        table.DECODING_STREAMS: {(each.model,): float(each.decoding) for each in models},
        table.PREFILLING_REQUESTS: {(each.model,): float(each.prefilling) for each in models},
        table.PREFILLING_TOKENS: {(each.model,): float(each.prefilling_tokens) for each in models},
        table.OLDEST_FIRST_TOKEN_WAIT: {(each.model,): each.oldest_wait_s for each in models},
        table.OPEN_GAP: {(each.model,): each.longest_silence_s for each in models},
        table.FROZEN_STREAMS: {(each.model,): float(each.frozen) for each in models},
    }


def _costs(models: Iterable[ModelAdvice]) -> dict[Spec, Values]:
    """What is not learned yet is absent."""
    return {
        table.PREFILL_COST: {(each.model,): each.token_cost_s for each in models},
        table.PREFILL_COST_FIT: {(each.model,): each.fit for each in models},
        table.BASELINE_STEP: {(each.model,): each.baseline_step_s for each in models},
        table.ADVISED_MAX_BATCHED_TOKENS: {(each.model,): each.max_batched_tokens for each in models},
        table.ADVISED_MAX_QUEUED_TOKENS: {(each.model,): each.max_queued_tokens for each in models},
    }


def _pressures(models: Iterable[ModelPressure]) -> dict[Spec, Values]:
    return {
        table.CAPACITY_PRESSURE: {(each.model,): each.capacity for each in models},
        table.INTERFERENCE_PRESSURE: {(each.model,): each.interference for each in models},
    }


def _concurrency(registry: Registry, models: Iterable[ModelFigures]) -> None:
    seconds = registry.counter(table.CONCURRENCY_SECONDS)
    tokens = registry.counter(table.CONCURRENCY_TOKENS)
    requests = registry.counter(table.CONCURRENCY_REQUESTS)
    for each in models:
        for totals in each.concurrency:
            labels = (each.model, totals.label)
            seconds.set_total(labels, totals.seconds)
            tokens.set_total(labels, totals.tokens)
            requests.set_total(labels, totals.requests)
