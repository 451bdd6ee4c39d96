"""Figures of the live page, out of metrics."""

from __future__ import annotations

from prefillwatch.export import table
from prefillwatch.export.registry import Registry
from prefillwatch.observer.live import MOST_ENGINES, MOST_MODELS, live_figures

WINDOWS = ("10s", "1m")
BUCKETS = ("0-512", "512+")


def test_nothing_known_gives_empty_lists() -> None:
    found = live_figures(Registry().snapshot(), {}, WINDOWS, BUCKETS)
    assert found == {"windows": WINDOWS, "models": [], "engines": [], "more_engines": 0}


def test_figures_of_a_model_by_window_and_population_and_size() -> None:
    registry = Registry()
    registry.gauge(table.DECODING_STREAMS).set(("m",), 6)
    registry.gauge(table.INTER_TOKEN_LATENCY_P99).set(("m", "1m", "prefill"), 0.9)
    registry.gauge(table.INTER_TOKEN_LATENCY_P99).set(("m", "10s", "clear"), 0.02)
    registry.gauge(table.TIME_TO_FIRST_TOKEN_P99).set(("m", "10s", "512+"), 1.5)
    registry.gauge(table.CAPACITY_PRESSURE).set(("m",), 0.4)
    (model,) = live_figures(registry.snapshot(), {"m": {"words": "less"}}, WINDOWS, BUCKETS)["models"]
    assert model == {
        "model": "m",
        "gap_p99": [[None, None, 0.02], [None, 0.9, None]],
        "first_token_p99": [["0-512", [None, None]], ["512+", [1.5, None]]],
        "advice": {"words": "less"},
        "capacity_pressure": 0.4,
        "interference_pressure": None,
    }


def test_the_busiest_model_and_the_fullest_engine_come_first() -> None:
    registry = Registry()
    for model, streams in (("a", 1), ("b", 9), ("c", 0)):
        registry.gauge(table.DECODING_STREAMS).set((model,), streams)
    for engine, used in (("0", 0.1), ("1", 0.9), ("2", None)):
        registry.gauge(table.UPSTREAM_REQUESTS).set((engine, "running"), 1)
        registry.gauge(table.KV_CACHE_USAGE).set((engine,), used)
    found = live_figures(registry.snapshot(), {}, WINDOWS, BUCKETS)
    assert [model["model"] for model in found["models"]] == ["b", "a", "c"]
    assert [(engine["engine"], engine["used"]) for engine in found["engines"]] == [("1", 0.9), ("0", 0.1), ("2", None)]


def test_many_models_and_engines_are_bounded_and_the_rest_is_counted() -> None:
    registry = Registry()
    for number in range(100):
        registry.gauge(table.DECODING_STREAMS).set((f"m{number}",), number)
        registry.gauge(table.UPSTREAM_REQUESTS).set((str(number), "running"), 1)
    found = live_figures(registry.snapshot(), {}, WINDOWS, BUCKETS)
    assert len(found["models"]) == MOST_MODELS
    assert len(found["engines"]) == MOST_ENGINES
    assert found["more_engines"] == 100 - MOST_ENGINES
