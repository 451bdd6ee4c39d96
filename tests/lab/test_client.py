"""The measuring client against answers made of given bytes, and against the simulator's four endpoints."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.kit.eventually import soon

from prefillwatch.lab.client import Answer, ask
from prefillwatch.lab.simulator import SimServer, SimSettings

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(*events: str) -> bytes:
    data = "".join(f"data: {event}\n\n" for event in events).encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def token(text: str) -> str:
    return f'{{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}'


def answer_of(pieces: Sequence[bytes], **options: Any) -> Answer:
    """What the client makes of a server that sends these pieces, each when the client has had time to read the last."""

    async def main() -> Answer:
        served = asyncio.Event()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0.02)
            writer.close()
            served.set()

        async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            answer = await ask(f"http://127.0.0.1:{port}", {"model": "m"}, **options)
            await served.wait()
            return answer

    return asyncio.run(main())


def with_simulator(scenario: Callable[[str], Awaitable[None]]) -> None:
    async def main() -> None:
        async with SimServer(SimSettings(preset="small", served_model_name="m")) as server:
            await scenario(server.url)

    asyncio.run(main())


def test_each_read_with_text_is_one_time_whatever_it_carries() -> None:
    role = '{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}'
    usage = '{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}'
    pieces = [STREAM_HEAD, chunk(role), chunk(token("a")), chunk(token("b"), token("c")), chunk(token("d"), usage)]
    answer = answer_of([*pieces, chunk("[DONE]") + b"0\r\n\r\n"])
    assert (len(answer.reads_ns), answer.events) == (3, 4)
    assert (answer.prompt_tokens, answer.completion_tokens) == (9, 4)
    assert (answer.status, answer.complete, answer.error) == (200, True, "")
    assert answer.sent_ns < answer.reads_ns[0] < answer.reads_ns[1] < answer.reads_ns[2] <= answer.closed_ns
    assert len(answer.gaps_seconds) == 2
    assert answer.ttft_seconds is not None


def test_an_event_in_two_reads_belongs_to_the_second() -> None:
    whole = chunk(token("a"))
    answer = answer_of([STREAM_HEAD, whole[:30], whole[30:], b"0\r\n\r\n"])
    assert (len(answer.reads_ns), answer.events, answer.complete) == (1, 1, True)


def test_reasoning_and_tool_calls_are_text_and_pings_are_not() -> None:
    reasoning = '{"choices":[{"index":0,"delta":{"reasoning":"hm"}}]}'
    tool = '{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]}}]}'
    answer = answer_of([STREAM_HEAD, chunk(reasoning), b"c\r\n: ping ping\n\r\n", chunk(tool), b"0\r\n\r\n"])
    assert answer.events == 2


def test_the_token_events_of_each_read_are_kept_apart() -> None:
    pieces = [STREAM_HEAD, chunk(token("a")), chunk(token("b"), token("c")), b"0\r\n\r\n"]
    assert answer_of(pieces).read_events == [1, 2]


def test_lines_may_end_as_in_http() -> None:
    event = f"data: {token('a')}\r\n\r\n".encode()
    pieces = [STREAM_HEAD, b"%x\r\n%b\r\n" % (len(event), event), b"0\r\n\r\n"]
    assert answer_of(pieces).events == 1


def test_a_stream_without_a_length_ends_with_done() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    body = f"data: {token('a')}\n\ndata: [DONE]\n\n".encode()
    assert answer_of([head, body]).complete
    assert not answer_of([head, body[:-14]]).complete


def test_an_error_in_the_stream_is_an_error() -> None:
    answer = answer_of([STREAM_HEAD, chunk(token("a")), chunk('{"error":{"message":"boom"}}')])
    assert (answer.events, answer.error) == (1, "an error object in the stream")


def test_cached_prompt_tokens_are_told() -> None:
    usage = '{"choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}}'
    assert answer_of([STREAM_HEAD, chunk(usage), b"0\r\n\r\n"]).cached_tokens == 4


@pytest.mark.parametrize("count", ['"9"', "null", "-1", "9.5", "1e300", "[]"])
def test_what_is_no_number_of_tokens_is_not_known(count: str) -> None:
    usage = (
        f'{{"prompt_tokens":{count},"completion_tokens":{count},"prompt_tokens_details":{{"cached_tokens":{count}}}}}'
    )
    answer = answer_of([STREAM_HEAD, chunk(f'{{"choices":[],"usage":{usage}}}'), b"0\r\n\r\n"])
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (None, None, None)
    assert answer.complete


def test_more_than_the_prompt_cannot_have_been_cached() -> None:
    usage = '{"choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":10}}}'
    assert answer_of([STREAM_HEAD, chunk(usage), b"0\r\n\r\n"]).cached_tokens is None


def test_whoever_passes_an_answer_sees_it_fill_and_keeps_it_when_the_request_is_cancelled() -> None:
    async def scenario(url: str) -> None:
        answer = Answer()
        body = {"model": "m", "messages": [{"content": "a b"}], "max_tokens": 5000, "ignore_eos": True, "stream": True}
        asking = asyncio.ensure_future(ask(url, body, answer=answer))
        await soon(lambda: answer.events >= 3)
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        assert answer.events >= 3
        assert not answer.complete

    with_simulator(scenario)


def test_without_a_body_it_is_a_get() -> None:
    async def scenario(url: str) -> None:
        answer = await ask(url, None, path="/v1/models")
        assert answer.status == 200
        assert b'"m"' in answer.body

    with_simulator(scenario)


def test_a_stream_cut_short_is_no_complete_answer() -> None:
    answer = answer_of([STREAM_HEAD, chunk(token("a"))])
    assert (answer.status, answer.complete, answer.events) == (200, False, 1)
    assert "before the answer was complete" in answer.error


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([b"SSH-2.0-OpenSSH\r\n"], "no valid HTTP answer"),
        ([STREAM_HEAD, chunk("{nonsense")], "no JSON"),
        ([STREAM_HEAD, chunk('{"choices":[7]}')], "of no known shape"),
        ([STREAM_HEAD, chunk('{"choices":7}')], "of no known shape"),
    ],
)
def test_nonsense_is_an_error_and_no_exception(pieces: list[bytes], error: str) -> None:
    assert error in answer_of(pieces).error


def test_a_server_that_says_nothing_is_given_up() -> None:
    answer = answer_of([STREAM_HEAD, *[b""] * 20], timeout_seconds=0.05)
    assert answer.error == "no complete answer within 0.05 s"


def test_nobody_there_is_an_error_and_no_exception() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    answer = asyncio.run(ask(f"http://127.0.0.1:{port}", {}))
    assert (answer.status, answer.complete) == (0, False)
    assert answer.error


def test_a_refusal_keeps_its_body() -> None:
    async def scenario(url: str) -> None:
        answer = await ask(url, {"model": "other", "messages": []})
        assert (answer.status, answer.complete, answer.error) == (404, True, "")
        assert b"does not exist" in answer.body

    with_simulator(scenario)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v1/chat/completions",
            {"messages": [{"content": "a b"}], "max_tokens": 5, "stream_options": {"include_usage": True}},
        ),
        ("/v1/completions", {"prompt": "a b", "max_tokens": 5, "stream_options": {"include_usage": True}}),
        ("/v1/responses", {"input": "a b", "max_output_tokens": 5}),
        ("/v1/messages", {"messages": [{"content": "a b"}], "max_tokens": 5}),
    ],
)
def test_tokens_of_every_endpoint_are_counted(path: str, body: dict[str, Any]) -> None:
    async def scenario(url: str) -> None:
        answer = await ask(url, {"model": "m", "stream": True, **body}, path=path)
        assert (answer.status, answer.complete) == (200, True)
        assert (answer.events, answer.completion_tokens) == (5, 5)
        assert answer.prompt_tokens == (2 if path == "/v1/completions" else 9)

    with_simulator(scenario)


def test_usage_of_an_answer_without_stream() -> None:
    async def scenario(url: str) -> None:
        answer = await ask(url, {"model": "m", "prompt": "a b c", "max_tokens": 4}, path="/v1/completions")
        assert (answer.prompt_tokens, answer.completion_tokens, answer.events) == (3, 4, 0)

    with_simulator(scenario)
