"""A client that leaves is gone from the engine too, wherever its request was.

vLLM 0.32 does not count such a request under any finished_reason, with or without us in between; older releases count
it as "abort". So the signs are: nothing runs, and nothing was generated to its end.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from tests.real.client import ask
from tests.real.engine import Engine
from tests.real.four_endpoints import ENDPOINTS, PATHS, request
from tests.real.sidecar import Metrics, Sidecar

CHAT = PATHS["chat_completions"]
GAPS = "prefillwatch_inter_token_latency_seconds"


def client_closed(gained: Metrics) -> float:
    return gained.total("prefillwatch_requests_total", outcome="client_closed")


def leave_after(seconds: float, sidecar: Sidecar, path: str, body: dict[str, Any]) -> None:
    async def leave() -> None:
        leaving = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, leaving.set)
        answer = await ask(sidecar.port, path, body, leave=leaving)
        assert not answer.complete

    asyncio.run(leave())


def assert_aborted(
    engine: Engine, sidecar: Sidecar, vllm_before: Metrics, ours_before: Metrics, count: int = 1
) -> None:
    def engine_is_rid_of_it() -> bool:
        now = Metrics.read(f"{engine.url}/metrics")
        return now.total("vllm:num_requests_running") == now.total("vllm:num_requests_waiting") == 0

    def we_counted_it() -> bool:
        return client_closed(sidecar.metrics().since(ours_before)) == count

    assert sidecar.wait_until(engine_is_rid_of_it, 30, "rid of the request in the engine")
    finished = Metrics.read(f"{engine.url}/metrics").since(vllm_before)
    assert finished.total("vllm:request_success_total", finished_reason="length") == 0
    assert finished.total("vllm:request_success_total", finished_reason="stop") == 0
    assert sidecar.wait_until(we_counted_it, 30, "counting the client that left")
    now = sidecar.metrics()
    assert now.total("prefillwatch_decoding_streams") == 0
    assert now.total("prefillwatch_prefilling_requests") == 0


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_client_that_leaves_while_decoding(engine: Engine, sidecar: Sidecar, endpoint: str, stream: bool) -> None:
    before = Metrics.read(f"{engine.url}/metrics"), sidecar.metrics()
    leave_after(1.0, sidecar, PATHS[endpoint], request(endpoint, stream=stream, tokens=5000))
    assert_aborted(engine, sidecar, *before)


def test_a_client_that_leaves_during_its_prefill(engine: Engine, sidecar: Sidecar) -> None:
    before = Metrics.read(f"{engine.url}/metrics"), sidecar.metrics()
    leave_after(0.5, sidecar, CHAT, request("chat_completions", stream=True, text="raise " * 12_000, tokens=50))
    assert_aborted(engine, sidecar, *before)


def test_many_clients_that_leave_together(engine: Engine, sidecar: Sidecar) -> None:
    before = Metrics.read(f"{engine.url}/metrics"), sidecar.metrics()

    async def crowd() -> None:
        leaving = asyncio.Event()
        body = request("chat_completions", stream=True, tokens=5000)
        streams = [asyncio.create_task(ask(sidecar.port, CHAT, body, leave=leaving)) for _ in range(30)]
        await asyncio.sleep(2)
        leaving.set()
        await asyncio.gather(*streams)

    asyncio.run(crowd())
    assert_aborted(engine, sidecar, *before, count=30)


def test_a_client_that_left_is_no_stall_of_the_engine(engine: Engine, sidecar: Sidecar) -> None:
    """The open gap of the abandoned stream ends with it: what was counted by then are the gaps that the client saw."""
    before = sidecar.metrics()
    body = request("chat_completions", stream=True, tokens=5000)
    answer = asyncio.run(ask(sidecar.port, CHAT, body, close_after_bytes=20_000))
    assert not answer.complete
    sidecar.wait_until(lambda: client_closed(sidecar.metrics().since(before)) == 1, 30, "counting the client that left")
    gained = sidecar.metrics().since(before)
    assert gained.buckets(GAPS)[float("inf")] > 0
    seen = max(later.at_ns - earlier.at_ns for earlier, later in itertools.pairwise(answer.reads)) / 1e9
    beyond = min(edge for edge in gained.buckets(GAPS) if edge > seen + 0.5)
    assert gained.buckets(GAPS)[float("inf")] == gained.buckets(GAPS)[beyond]
    asyncio.run(asyncio.sleep(1.5))  # gaps whose prompt in service was not settled yet are counted by now; none is long
    later = sidecar.metrics().since(before)
    assert later.buckets(GAPS)[float("inf")] == later.buckets(GAPS)[beyond]
