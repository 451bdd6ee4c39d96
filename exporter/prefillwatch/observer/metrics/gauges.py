"""Values of now, worked out when somebody asks: windows, open gaps, requests in prefill, throughput by concurrency."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from prefillwatch.analysis.ledger import Ledger
from prefillwatch.analysis.model_books import ModelBooks
from prefillwatch.analysis.requests import ModelNames
from prefillwatch.analysis.tokens import SlidingWindows
from prefillwatch.export import table
from prefillwatch.export.registry import Labels, Registry
from prefillwatch.export.spec import Spec, window_name
from prefillwatch.observer.api import publish_cost_models
from prefillwatch.units import NS

Values = dict[Labels, float | None]

_P50_P99: Final = (0.5, 0.99)


class Gauges:
    """Writes the gauges of the ledger into a registry. A gauge without a value is absent, never 0."""

    def __init__(self, registry: Registry, ledger: Ledger, names: ModelNames) -> None:
        self._registry = registry
        self._ledger = ledger
        self._names = names

    def refresh(self, now_ns: int) -> None:
        models = [(self._names.labels[number], books) for number, books in self._ledger.models.items()]
        self._windows(models)
        self._in_flight(now_ns)
        self._open_gaps(now_ns)
        self._correlation(models, now_ns)
        self._concurrency(models)
        publish_cost_models(self._registry, self._ledger, self._names)

    def _set(self, spec: Spec, values: Values) -> None:
        self._registry.gauge(spec).replace(values)

    def _windows(self, models: Iterable[tuple[str, ModelBooks]]) -> None:
        p50: Values = {}
        p99: Values = {}
        longest: Values = {}
        ttft: Values = {}
        prompts: Values = {}
        interference: Values = {}
        for model, books in models:
            for seconds in books.windows_s:
                window = window_name(seconds)
                for population, gaps in _populations(books):
                    labels = (model, window, population)
                    p50[labels], p99[labels] = gaps.quantiles(_P50_P99, seconds)
                    longest[labels] = gaps.maximum(seconds)
                for label, first_tokens in zip(self._ledger.buckets.labels, books.ttft, strict=True):
                    if first_tokens is not None:
                        ttft[(model, window, label)] = first_tokens.quantile(0.99, seconds)
                prompts[(model, window)] = books.prompts.maximum(seconds)
                interference[(model, window)] = books.interference_ratio(seconds)
        self._set(table.INTER_TOKEN_LATENCY_P50, p50)
        self._set(table.INTER_TOKEN_LATENCY_P99, p99)
        self._set(table.INTER_TOKEN_LATENCY_MAX, longest)
        self._set(table.TIME_TO_FIRST_TOKEN_P99, ttft)
        self._set(table.PROMPT_LENGTH_MAX, prompts)
        self._set(table.INTERFERENCE, interference)

    def _in_flight(self, now_ns: int) -> None:
        decoding: defaultdict[int, int] = defaultdict(int)
        waiting: defaultdict[int, int] = defaultdict(int)
        tokens: defaultdict[int, int] = defaultdict(int)
        oldest: dict[int, int] = {}
        for request in self._ledger.requests.values():
            decoding[request.model] += request.decoding
            if request.generating and request.in_prefill:
                waiting[request.model] += 1
                tokens[request.model] += request.prompt_tokens
                # A JSON answer shows no first token, so its wait says nothing.
                if request.streaming and request.received_ns:
                    oldest[request.model] = min(request.received_ns, oldest.get(request.model, now_ns))
        known = self._ledger.models.keys() | decoding.keys()
        self._set(table.DECODING_STREAMS, self._by_model({model: decoding[model] for model in known}))
        self._set(table.PREFILLING_REQUESTS, self._by_model({model: waiting[model] for model in known}))
        self._set(table.PREFILLING_TOKENS, self._by_model({model: tokens[model] for model in known}))
        ages = {model: (now_ns - since_ns) / NS for model, since_ns in oldest.items()}
        self._set(table.OLDEST_FIRST_TOKEN_WAIT, self._by_model(ages))

    def _by_model(self, values: dict[int, int] | dict[int, float]) -> Values:
        return {(self._names.labels[model],): float(value) for model, value in values.items()}

    def _open_gaps(self, now_ns: int) -> None:
        longest: defaultdict[int, float] = defaultdict(float)
        frozen: dict[int, float] = dict.fromkeys(self._ledger.models, 0.0)
        for silence in self._ledger.silences(now_ns):
            model = self._ledger.book.model(silence.slot)
            longest[model] = max(longest[model], silence.seconds)
            frozen[model] = frozen.get(model, 0.0) + silence.frozen
        self._set(table.OPEN_GAP, self._by_model(dict(longest)))
        self._set(table.FROZEN_STREAMS, self._by_model(frozen))

    def _correlation(self, models: Iterable[tuple[str, ModelBooks]], now_ns: int) -> None:
        values: Values = {
            (model, window_name(seconds)): books.correlation.ratio(now_ns // NS, seconds)
            for model, books in models
            for seconds in books.windows_s
        }
        self._set(table.PROMPT_ITL_CORRELATION, values)

    def _concurrency(self, models: Iterable[tuple[str, ModelBooks]]) -> None:
        seconds = self._registry.counter(table.CONCURRENCY_SECONDS)
        tokens = self._registry.counter(table.CONCURRENCY_TOKENS)
        requests = self._registry.counter(table.CONCURRENCY_REQUESTS)
        for model, books in models:
            for totals in books.concurrency.totals():
                labels = (model, totals.label)
                seconds.set_total(labels, totals.seconds)
                tokens.set_total(labels, totals.tokens)
                requests.set_total(labels, totals.requests)


def _populations(books: ModelBooks) -> tuple[tuple[str, SlidingWindows], ...]:
    return ("all", books.all_gaps), ("prefill", books.prefill_gaps), ("clear", books.clear_gaps)
