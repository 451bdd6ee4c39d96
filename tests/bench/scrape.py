"""What a page of metrics costs: CPU time of writing it, and for how long an event loop beside it is held up.

    python -m tests.bench.scrape                  this checkout
    python -m tests.bench.scrape --before DIR     and the one in DIR, in turns with it

Each side runs in a process of its own, several times in turns; the figures are the medians of all runs.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time

from tests.bench.turns import in_turns

from prefillwatch.export.exposition import render
from prefillwatch.export.registry import Registry, Snapshot
from prefillwatch.export.spec import Kind
from prefillwatch.export.table import TABLE

MODELS = (1, 9)  # 1,107 and 9,523 series
ROUNDS = 5
PAGES = 9
TICK_S = 0.001
FORMATS = {"text": "", "OpenMetrics": "application/openmetrics-text;version=1.0.0"}


def main() -> None:
    in_turns("tests.bench.scrape", measure, ROUNDS)


def measure() -> dict[str, float]:
    """Milliseconds by what was measured."""
    figures = {}
    for models in MODELS:
        snapshot = full(models)
        series = sum(family.series for family in snapshot)
        for name, accept in FORMATS.items():
            figures[f"{series:,} series, {name}: CPU"] = statistics.median(
                cpu_ms(snapshot, accept) for _ in range(PAGES)
            )
            held_up = asyncio.run(longest_wait_ms(snapshot, accept))
            figures[f"{series:,} series, {name}: loop held up, at most"] = held_up
    return figures


def full(models: int) -> Snapshot:
    """Every metric with every label set that it can have for so many models."""
    registry = Registry()
    for spec, number in itertools.product(TABLE, range(models)):
        model = f"model-{number}"
        if spec.kind is Kind.GAUGE:
            for labels in itertools.product(*(label.values or (model,) for label in spec.labels)):
                registry.gauge(spec).set(labels, 0.5)
        else:
            registry.precreate(spec, **{label.name: model for label in spec.labels if not label.values})
    return registry.snapshot()


def cpu_ms(snapshot: Snapshot, accept: str) -> float:
    before = time.thread_time()
    render(snapshot, accept)
    return (time.thread_time() - before) * 1e3


async def longest_wait_ms(snapshot: Snapshot, accept: str) -> float:
    """How late a timer of the loop came at most while a thread wrote pages, in the median of a few pages."""
    longest = []
    for _ in range(PAGES):
        writing = asyncio.ensure_future(asyncio.to_thread(render, snapshot, accept))
        late = 0.0
        while not writing.done():
            begun = time.perf_counter()
            await asyncio.sleep(TICK_S)
            late = max(late, time.perf_counter() - begun - TICK_S)
        await writing
        longest.append(late * 1e3)
    return statistics.median(longest)


if __name__ == "__main__":
    main()
