"""What the engine says of itself arrives in our metrics: KV cache, queue, health."""

from __future__ import annotations

import asyncio

import pytest
from tests.real.client import ask
from tests.real.engine import Engine
from tests.real.four_endpoints import PATHS, request
from tests.real.sidecar import Metrics, Sidecar

CHAT = PATHS["chat_completions"]
KV_CACHE_BYTES = 2 * 2**30
BYTES_PER_TOKEN = 2 * 6 * 512 * 2  # keys and values, layers, hidden size, bytes of bfloat16


def test_occupancy_of_the_kv_cache_follows_the_engine(engine: Engine, sidecar: Sidecar) -> None:
    async def watch() -> tuple[list[float], list[float]]:
        leave = asyncio.Event()
        bodies = [
            request("chat_completions", stream=True, text=f"{i} " + "import " * 3000, tokens=3000) for i in range(3)
        ]
        streams = [asyncio.create_task(ask(sidecar.port, CHAT, body, leave=leave)) for body in bodies]
        ours, theirs = [], []
        for _ in range(8):
            await asyncio.sleep(1)
            ours.append(sidecar.metrics().total("prefillwatch_kv_cache_usage_ratio"))
            theirs.append(Metrics.read(f"{engine.url}/metrics").total("vllm:kv_cache_usage_perc"))
        leave.set()
        await asyncio.gather(*streams)
        return ours, theirs

    ours, theirs = asyncio.run(watch())
    # Three prompts of 3,000 tokens in a cache of 174,720.
    assert max(theirs) > 0.04
    assert max(ours) == pytest.approx(max(theirs), rel=0.1)
    peak = sidecar.metrics().value("prefillwatch_kv_cache_usage_max_ratio", window="1m")
    assert peak >= max(ours)


def test_capacity_and_free_tokens(sidecar: Sidecar) -> None:
    metrics = sidecar.metrics()
    capacity = metrics.value("prefillwatch_kv_cache_capacity_tokens")
    assert capacity == pytest.approx(KV_CACHE_BYTES / BYTES_PER_TOKEN, rel=0.01)
    assert 0 < metrics.value("prefillwatch_kv_cache_free_tokens") <= capacity


def test_requests_inside_the_engine(sidecar: Sidecar) -> None:
    async def while_running() -> float:
        leave = asyncio.Event()
        body = request("chat_completions", stream=True, tokens=3000)
        streams = [asyncio.create_task(ask(sidecar.port, CHAT, body, leave=leave)) for _ in range(4)]
        await asyncio.sleep(3.5)
        running = sidecar.metrics().total("prefillwatch_upstream_requests", state="running")
        leave.set()
        await asyncio.gather(*streams)
        return running

    assert asyncio.run(while_running()) == 4


def test_the_server_is_known_and_up(sidecar: Sidecar) -> None:
    metrics = sidecar.metrics()
    assert metrics.value("prefillwatch_up") == 1
    assert metrics.value("prefillwatch_upstream_scrape_success") == 1
    assert metrics.value("prefillwatch_kv_signal_present") == 1
    assert metrics.value("prefillwatch_upstream_info", server="vllm") == 1
