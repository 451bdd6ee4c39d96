"""What a client gets through the sidecar is what vLLM sent.

Two comparisons, since neither says all. Against what vLLM sent for this very request, kept by a hop behind the sidecar:
exact to the byte. Against the same request sent to vLLM directly: with ids and times normalised, it shows that our
being there changes nothing in what vLLM answers.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from typing import Any

import pytest
from tests.real.client import Answer, ask
from tests.real.engine import Engine
from tests.real.four_endpoints import ENDPOINTS, NOTHING, PATHS, essence, normalised, request
from tests.real.sidecar import Sidecar
from tests.real.tee import Tee

# Headers that belong to one connection or one moment, not to the answer.
OF_THE_HOP = {b"connection", b"keep-alive", b"transfer-encoding"}
USAGE = re.compile(rb',"usage":\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}')
# vLLM puts the fingerprint into the last event with text, or, if usage was asked for, into the event with usage that we
# strip. By then the last event with text is long with the client.
FINGERPRINT = re.compile(rb',"system_fingerprint":"[^"]*"')

_numbers = itertools.count()


def ask_one(port: int, path: str, body: Any = None, request_id: str = "") -> Answer:
    return asyncio.run(ask(port, path, body, {"X-Request-Id": request_id or drawn_id()}))


def assert_untouched(tee: Tee, sidecar: Sidecar, path: str, body: Any = None) -> Answer:
    """Ask through the sidecar; the answer must be what vLLM sent, headers and all."""
    request_id = drawn_id()
    got = ask_one(sidecar.port, path, body, request_id)
    sent = tee.answer_to(request_id)
    assert got.status == sent.status
    assert got.body == sent.body
    assert end_to_end(got) == end_to_end(sent)
    assert (got.complete, sent.complete) == (True, True)
    return got


def drawn_id() -> str:
    """A request id of its own, as long as all others, since vLLM makes the answer's id from it."""
    return f"r{next(_numbers):05}"


def end_to_end(answer: Answer, *but: bytes) -> list[tuple[bytes, bytes]]:
    return [pair for pair in answer.headers if pair[0].lower() not in OF_THE_HOP.union(but)]


def assert_as_direct(
    engine: Engine, got: Answer, path: str, body: Any = None, *, but: re.Pattern[bytes] = NOTHING
) -> None:
    """The same request without us gives the same answer, drawn ids, times and what `but` matches left out."""
    direct = ask_one(engine.port, path, body)
    if got.header("content-type") == b"text/event-stream; charset=utf-8":
        assert essence(got, but) == essence(direct, but)
    else:
        assert normalised(got.body, but) == normalised(direct.body, but)
    assert got.status == direct.status
    assert end_to_end(got, b"date") == end_to_end(direct, b"date")


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_an_answer_is_the_same_with_and_without_us(
    engine: Engine, tee: Tee, teed_sidecar: Sidecar, endpoint: str, stream: bool
) -> None:
    path, body = PATHS[endpoint], request(endpoint, stream=stream)
    got = assert_untouched(tee, teed_sidecar, path, body)
    assert got.status == 200
    assert_as_direct(engine, got, path, body)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_stream_stays_a_chunked_stream(tee: Tee, teed_sidecar: Sidecar, endpoint: str) -> None:
    got = assert_untouched(tee, teed_sidecar, PATHS[endpoint], request(endpoint, stream=True, tokens=500))
    assert got.header("transfer-encoding") == b"chunked"
    assert got.header("content-length") is None
    assert len(got.reads) > 1  # a client that gets no core for a while reads few tokens at once, but not 500


def test_several_choices_with_usage_in_every_event(tee: Tee, teed_sidecar: Sidecar) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = request("chat_completions", stream=True, n=3, temperature=1.0, seed=7, stream_options=options)
    got = assert_untouched(tee, teed_sidecar, PATHS["chat_completions"], body)
    assert {choice["index"] for event in got.events() for choice in event["choices"]} == {0, 1, 2}


REFUSED = {
    "unknown model": ("/v1/chat/completions", {"model": "nobody", "messages": [{"role": "user", "content": "a"}]}),
    "broken JSON": ("/v1/chat/completions", b'{"model": "tiny", "messages": ['),
    "bad value": ("/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": -1}),
    "unknown path": ("/v1/nothing-here", {"a": 1}),
}


@pytest.mark.parametrize(("path", "body"), REFUSED.values(), ids=REFUSED)
def test_an_error_of_vllm_reaches_the_client_as_it_is(
    engine: Engine, tee: Tee, teed_sidecar: Sidecar, path: str, body: Any
) -> None:
    got = assert_untouched(tee, teed_sidecar, path, body)
    assert 400 <= got.status < 500
    assert_as_direct(engine, got, path, body)


@pytest.mark.parametrize("path", ["/v1/models", "/version", "/health", "/ping"])
def test_paths_without_generation_pass_through(engine: Engine, tee: Tee, teed_sidecar: Sidecar, path: str) -> None:
    got = assert_untouched(tee, teed_sidecar, path)
    assert got.status == 200
    assert end_to_end(got, b"date") == end_to_end(ask_one(engine.port, path), b"date")


def test_the_metrics_of_vllm_stay_reachable(tee: Tee, teed_sidecar: Sidecar) -> None:
    got = assert_untouched(tee, teed_sidecar, "/metrics")
    assert b"vllm:num_requests_running" in got.body


def test_a_long_prompt_and_a_long_answer(tee: Tee, teed_sidecar: Sidecar) -> None:
    body = request("chat_completions", stream=True, text="import os, sys\n" * 1000, tokens=300)
    assert_untouched(tee, teed_sidecar, PATHS["chat_completions"], body)


def test_streams_at_once_do_not_mix(tee: Tee, teed_sidecar: Sidecar) -> None:
    bodies = [request("chat_completions", stream=True, text=f"def f{i}(a):\n" * (i + 1), tokens=60) for i in range(12)]

    async def at_once() -> list[Answer]:
        calls = (
            ask(teed_sidecar.port, PATHS["chat_completions"], body, {"X-Request-Id": f"mix-{i}-"})
            for i, body in enumerate(bodies)
        )
        return await asyncio.gather(*calls)

    for number, got in enumerate(asyncio.run(at_once())):
        assert got.body == tee.answer_to(f"mix-{number}-").body
        assert {event["id"] for event in got.events()} == {f"chatcmpl-mix-{number}-"}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_usage_that_was_injected_is_not_seen_by_the_client(
    engine: Engine, injecting_sidecar: Sidecar, endpoint: str, stream: bool
) -> None:
    path, body = PATHS[endpoint], request(endpoint, stream=stream)
    got = ask_one(injecting_sidecar.port, path, body)
    assert (got.status, got.complete) == (200, True)
    assert_as_direct(engine, got, path, body, but=FINGERPRINT)


@pytest.mark.parametrize("endpoint", ["chat_completions", "completions"])
def test_injection_asks_vllm_for_usage_and_strips_just_that(
    tee: Tee, injecting_sidecar: Sidecar, endpoint: str
) -> None:
    request_id = drawn_id()
    got = ask_one(injecting_sidecar.port, PATHS[endpoint], request(endpoint, stream=True), request_id)
    sent = tee.answer_to(request_id)
    assert any(event.get("usage") for event in sent.events())
    assert got.body == without_usage(sent.body)


def without_usage(body: bytes) -> bytes:
    """The stream as vLLM would have sent it unasked for usage, but for the fingerprint."""
    blocks = [block for block in body.split(b"\n\n") if b'"choices":[]' not in block]
    return b"\n\n".join(USAGE.sub(b"", block) for block in blocks)


def test_usage_that_the_client_asked_for_itself_is_left_to_it(tee: Tee, injecting_sidecar: Sidecar) -> None:
    body = request("chat_completions", stream=True, stream_options={"include_usage": True})
    got = ask_one(injecting_sidecar.port, PATHS["chat_completions"], body)
    assert got.events()[-1]["usage"]["completion_tokens"] == body["max_tokens"]
