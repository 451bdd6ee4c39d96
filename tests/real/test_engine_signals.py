"""What the engine says of itself arrives in our metrics: KV cache, queue, health."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.real.client import ask
from tests.real.engine import Engine
from tests.real.four_endpoints import PATHS, request
from tests.real.sidecar import Metrics, Sidecar

CHAT = PATHS["chat_completions"]
PATIENCE_S = 120.0
KV_CACHE_BYTES = 2 * 2**30
BYTES_PER_TOKEN = 2 * 6 * 512 * 4  # keys and values, layers, hidden size, bytes of float32


async def while_streaming(sidecar: Sidecar, bodies: Sequence[dict[str, Any]], seen: Callable[[], bool]) -> None:
    """Streams run until ``seen``."""
    leave = asyncio.Event()
    streams = [asyncio.create_task(ask(sidecar.port, CHAT, body, leave=leave)) for body in bodies]
    try:
        await asyncio.to_thread(sidecar.wait_until, seen, PATIENCE_S, "telling what the engine told")
    finally:
        leave.set()
        await asyncio.gather(*streams)


def test_occupancy_of_the_kv_cache_follows_the_engine(engine: Engine, sidecar: Sidecar) -> None:
    highest = 0.0

    def follows() -> bool:
        nonlocal highest
        ours = sidecar.metrics().total("prefillwatch_kv_cache_usage_ratio")
        theirs = Metrics.read(f"{engine.url}/metrics").total("vllm:kv_cache_usage_perc")
        highest = max(highest, ours)
        # Three prompts of 3,000 tokens in a cache of 87,360; ours is up to a second older.
        return theirs > 0.04 and ours == pytest.approx(theirs, rel=0.1)

    bodies = [request("chat_completions", stream=True, text=f"{i} " + "import " * 3000, tokens=3000) for i in range(3)]
    asyncio.run(while_streaming(sidecar, bodies, follows))
    assert sidecar.metrics().value("prefillwatch_kv_cache_usage_max_ratio", window="1m") >= highest > 0.03


def test_capacity_and_free_tokens(sidecar: Sidecar) -> None:
    metrics = sidecar.metrics()
    capacity = metrics.value("prefillwatch_kv_cache_capacity_tokens")
    assert capacity == pytest.approx(KV_CACHE_BYTES / BYTES_PER_TOKEN, rel=0.01)
    assert 0 < metrics.value("prefillwatch_kv_cache_free_tokens") <= capacity


def test_requests_inside_the_engine(sidecar: Sidecar) -> None:
    def running() -> float:
        return sidecar.metrics().total("prefillwatch_upstream_requests", state="running")

    bodies = [request("chat_completions", stream=True, tokens=3000) for _ in range(4)]
    asyncio.run(while_streaming(sidecar, bodies, lambda: running() == 4))
    # The engine counts at the end of a step: where the last step was over when they left, the next one tells.
    asyncio.run(ask(sidecar.port, CHAT, request("chat_completions", stream=True, tokens=1)))
    assert sidecar.wait_until(lambda: running() == 0, PATIENCE_S, "rid of them")


def test_the_server_is_known_and_up(sidecar: Sidecar) -> None:
    metrics = sidecar.metrics()
    assert metrics.value("prefillwatch_up") == 1
    assert metrics.value("prefillwatch_upstream_scrape_success") == 1
    assert metrics.value("prefillwatch_kv_signal_present") == 1
    assert metrics.value("prefillwatch_upstream_info", server="vllm") == 1
