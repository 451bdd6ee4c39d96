"""The tokens and requests that we count are those that vLLM reports."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.real.client import Answer, ask
from tests.real.engine import MODEL_NAME, Engine
from tests.real.four_endpoints import ENDPOINTS, PATHS, TOKENS, request, usage
from tests.real.sidecar import Metrics, Sidecar


def ask_and_settle(sidecar: Sidecar, *calls: tuple[str, dict[str, Any]]) -> tuple[list[Answer], Metrics]:
    """Send requests at once; their answers, and what our metrics gained when the last was accounted for."""
    before = sidecar.metrics()

    async def at_once() -> list[Answer]:
        return await asyncio.gather(*(ask(sidecar.port, PATHS[endpoint], body) for endpoint, body in calls))

    def counted() -> bool:
        return sidecar.metrics().since(before).total("prefillwatch_requests_total", outcome="ok") >= len(calls)

    answers = asyncio.run(at_once())
    sidecar.wait_until(counted, 30, "done counting")
    return answers, sidecar.metrics().since(before)


def at_rest(sidecar: Sidecar) -> Metrics:
    """Our metrics once no gap of what was before is counted any more."""
    seen = [sidecar.metrics()]

    def stands_still() -> bool:
        time.sleep(1.5)
        seen.append(sidecar.metrics())
        return seen[-1].gaps() == seen[-2].gaps()

    sidecar.wait_until(stands_still, 60, "at rest")
    return seen[-1]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_tokens_equal_usage(sidecar: Sidecar, endpoint: str, stream: bool) -> None:
    options: dict[str, Any] = (
        {"stream_options": {"include_usage": True}} if stream and "completions" in endpoint else {}
    )
    [answer], gain = ask_and_settle(sidecar, (endpoint, request(endpoint, stream=stream, **options)))
    prompt, completion, cached = usage(answer, stream)
    assert completion == TOKENS
    assert gain.total("prefillwatch_generated_tokens_total", model=MODEL_NAME) == completion
    assert gain.total("prefillwatch_prompt_tokens_total", model=MODEL_NAME) == prompt
    assert gain.total("prefillwatch_cached_prompt_tokens_total", model=MODEL_NAME) == cached
    assert gain.total("prefillwatch_requests_total", endpoint=endpoint, outcome="ok") == 1


def test_cached_tokens_of_a_repeated_prompt(sidecar: Sidecar) -> None:
    body = request(
        "chat_completions", stream=True, text="class Cached:\n" * 200, stream_options={"include_usage": True}
    )
    ask_and_settle(sidecar, ("chat_completions", body))
    [answer], gain = ask_and_settle(sidecar, ("chat_completions", body))
    _, _, cached = usage(answer, stream=True)
    assert cached > 0
    assert gain.total("prefillwatch_cached_prompt_tokens_total") == cached


def test_a_stream_without_usage_is_counted_by_its_events(sidecar: Sidecar) -> None:
    [answer], gain = ask_and_settle(sidecar, ("chat_completions", request("chat_completions", stream=True)))
    assert gain.total("prefillwatch_generated_tokens_total") == len(texts(answer)) > 0


def texts(answer: Answer) -> list[str]:
    """The pieces of text of a chat stream, one per event that has any."""
    pieces = (choice["delta"].get("content") for event in answer.events() for choice in event["choices"])
    return [piece for piece in pieces if piece]


def test_every_gap_and_first_token_is_counted_once(sidecar: Sidecar) -> None:
    calls = [("chat_completions", request("chat_completions", stream=True, tokens=50))] * 6
    before = at_rest(sidecar)
    answers, gain = ask_and_settle(sidecar, *calls)
    events = sum(len(texts(answer)) - 1 for answer in answers)
    # A gap is counted when it is clear what it overlapped, which takes a moment.
    sidecar.wait_until(lambda: sidecar.metrics().since(before).gaps() >= events, 30, "done counting gaps")
    assert sidecar.metrics().since(before).gaps() == events
    assert gain.total("prefillwatch_time_to_first_token_seconds_count") == 6


def test_prompt_lengths_are_those_of_vllm(engine: Engine, sidecar: Sidecar) -> None:
    vllm = Metrics.read(f"{engine.url}/metrics")
    sizes = (5, 300, 2000)
    calls = [
        (
            "completions",
            request("completions", stream=True, text="import " * size, stream_options={"include_usage": True}),
        )
        for size in sizes
    ]
    _, gain = ask_and_settle(sidecar, *calls)
    theirs = Metrics.read(f"{engine.url}/metrics").since(vllm)
    assert gain.total("prefillwatch_prompt_length_tokens_sum") == theirs.total("vllm:prompt_tokens_total")
    assert gain.total("prefillwatch_prompt_length_tokens_count") == len(sizes)


def test_injected_usage_makes_counts_exact_for_clients_that_ask_for_none(
    injecting_sidecar: Sidecar, engine: Engine
) -> None:
    vllm = Metrics.read(f"{engine.url}/metrics")
    calls = [(endpoint, request(endpoint, stream=True)) for endpoint in ENDPOINTS]
    _, gain = ask_and_settle(injecting_sidecar, *calls)
    theirs = Metrics.read(f"{engine.url}/metrics").since(vllm)
    assert gain.total("prefillwatch_prompt_tokens_total") == theirs.total("vllm:prompt_tokens_total")
    assert gain.total("prefillwatch_generated_tokens_total") == theirs.total("vllm:generation_tokens_total")


def test_a_refused_request_is_no_error_of_the_server(sidecar: Sidecar) -> None:
    before = sidecar.metrics()
    asyncio.run(ask(sidecar.port, PATHS["chat_completions"], {"model": "nobody", "messages": []}))

    def rejected() -> bool:
        gain = sidecar.metrics().since(before)
        return gain.total("prefillwatch_requests_total", endpoint="chat_completions", outcome="rejected") == 1

    assert sidecar.wait_until(rejected, 10, "counting the refused request")
    assert not sidecar.metrics().has("prefillwatch_requests_total", model="nobody")
