"""The figures of the live page, out of a snapshot of the metrics: by model, and by engine. Pure."""

from __future__ import annotations

from typing import Any, Final

from prefillwatch.export import table
from prefillwatch.export.registry import Labels, Snapshot
from prefillwatch.export.spec import Spec

MOST_MODELS: Final = 16
MOST_ENGINES: Final = 32

Values = dict[str, dict[Labels, float]]


def live_figures(snapshot: Snapshot, advice: dict[str, Any], windows: tuple[str, ...], buckets: tuple[str, ...]) -> Any:
    """Seconds and ratios; what is unknown is absent or None. The busiest model comes first, and the fullest engine."""
    values: Values = {family.spec.name: family.values for family in snapshot}
    models = sorted({labels[0] for labels in values[table.DECODING_STREAMS.name]})
    models.sort(key=lambda model: -_of(values, table.DECODING_STREAMS, model, or_else=0.0))
    engines = sorted({labels[0] for labels in values[table.UPSTREAM_REQUESTS.name]})
    engines.sort(key=lambda engine: -_of(values, table.KV_CACHE_USAGE, engine, or_else=0.0))
    return {
        "windows": windows,
        "models": [_model(values, model, advice, windows, buckets) for model in models[:MOST_MODELS]],
        "engines": [_engine(values, engine, windows) for engine in engines[:MOST_ENGINES]],
        "more_engines": max(0, len(engines) - MOST_ENGINES),
    }


def _of(values: Values, spec: Spec, *labels: str, or_else: Any = None) -> Any:
    return values[spec.name].get(labels, or_else)


def _model(
    values: Values, model: str, advice: dict[str, Any], windows: tuple[str, ...], buckets: tuple[str, ...]
) -> dict[str, Any]:
    populations = table.POPULATION.values
    gaps, first_tokens = table.INTER_TOKEN_LATENCY_P99, table.TIME_TO_FIRST_TOKEN_P99
    return {
        "model": model,
        "gap_p99": [[_of(values, gaps, model, window, each) for each in populations] for window in windows],
        "first_token_p99": [
            [bucket, [_of(values, first_tokens, model, window, bucket) for window in windows]] for bucket in buckets
        ],
        "advice": advice.get(model),
        "capacity_pressure": _of(values, table.CAPACITY_PRESSURE, model),
        "interference_pressure": _of(values, table.INTERFERENCE_PRESSURE, model),
    }


def _engine(values: Values, engine: str, windows: tuple[str, ...]) -> dict[str, Any]:
    return {
        "engine": engine,
        "used": _of(values, table.KV_CACHE_USAGE, engine),
        "peaks": [_of(values, table.KV_CACHE_USAGE_MAX, engine, window) for window in windows],
        "capacity_tokens": _of(values, table.KV_CACHE_CAPACITY, engine),
        "free_tokens": _of(values, table.KV_CACHE_FREE, engine),
        "running": _of(values, table.UPSTREAM_REQUESTS, engine, "running"),
        "waiting": _of(values, table.UPSTREAM_REQUESTS, engine, "waiting"),
        "preemptions": _of(values, table.PREEMPTIONS, engine),
    }
