from __future__ import annotations

import json
from typing import Any

import pytest

from prefillwatch.wire.answer import AnswerReader


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def delta(kind: str, **fields: Any) -> bytes:
    return event("content_block_delta", index=0, delta={"type": kind, **fields})


def reader() -> AnswerReader:
    return AnswerReader("messages", "text/event-stream")


def start(**usage: int) -> bytes:
    return event("message_start", message={"id": "msg_1", "model": "llama", "role": "assistant", "usage": usage})


def test_a_usual_stream() -> None:
    answer = reader()
    assert answer.feed(start(input_tokens=0, output_tokens=0)) == 0
    assert answer.prompt_tokens is None
    assert answer.feed(event("content_block_start", index=0, content_block={"type": "text", "text": ""})) == 0
    assert answer.feed(event("ping")) == 0
    assert [answer.feed(delta("text_delta", text=text)) for text in ("Hello", " you", "", "!")] == [1, 1, 0, 1]
    assert answer.chars_in_read == 1
    assert answer.feed(event("content_block_stop", index=0)) == 0
    usage = {"input_tokens": 40, "output_tokens": 4}
    assert answer.feed(event("message_delta", delta={"stop_reason": "end_turn"}, usage=usage)) == 0
    assert not answer.finished
    assert answer.feed(event("message_stop")) == 0
    assert (answer.prompt_tokens, answer.completion_tokens, answer.finish_reason) == (40, 4, "end_turn")
    assert (answer.finished, answer.error, answer.response_id, answer.model) == (True, None, "msg_1", "llama")
    assert answer.token_events == 3


def test_thinking_and_tool_input_count_signatures_and_citations_do_not() -> None:
    answer = reader()
    assert answer.feed(event("content_block_start", index=0, content_block={"type": "tool_use", "name": "f"})) == 0
    assert answer.feed(delta("thinking_delta", thinking="Hmm")) == 1
    assert answer.feed(delta("input_json_delta", partial_json='{"a"')) == 1
    assert answer.feed(delta("input_json_delta", partial_json="")) == 0
    assert answer.feed(delta("signature_delta", signature="abc")) == 0
    assert answer.feed(delta("citations_delta", citation={"cited_text": "abc"})) == 0


def test_cumulative_counts_are_not_added_up() -> None:
    answer = reader()
    answer.feed(start(input_tokens=40, output_tokens=1))
    answer.feed(event("message_delta", delta={}, usage={"input_tokens": 40, "output_tokens": 6}))
    answer.feed(event("message_delta", delta={}, usage={"output_tokens": 9}))
    assert (answer.prompt_tokens, answer.completion_tokens) == (40, 9)


def test_cached_tokens_are_added_to_the_input() -> None:
    answer = reader()
    answer.feed(start(input_tokens=10, cache_read_input_tokens=80, cache_creation_input_tokens=5, output_tokens=1))
    assert (answer.prompt_tokens, answer.cached_tokens) == (95, 80)
    answer.feed(event("message_delta", delta={}, usage={"input_tokens": 10, "output_tokens": 3}))
    assert answer.prompt_tokens == 95


@pytest.mark.parametrize(
    ("read", "code"),
    [
        (event("error", error={"type": "overloaded_error", "message": "m"}), "overloaded_error"),
        (b'event: error\ndata: {"error":{"type":"api_error"}}\n\n', "api_error"),
        (b'event: error\ndata: {"message":"x"}\n\n', "error"),
    ],
)
def test_an_error_event(read: bytes, code: str) -> None:
    answer = reader()
    assert answer.feed(delta("text_delta", text="a")) == 1
    assert answer.feed(read) == 0
    assert (answer.error, answer.token_events) == (code, 1)


def test_odd_shapes() -> None:
    answer = reader()
    for body in (
        b"[]",
        b"null",
        b'{"type":"content_block_delta"}',
        b'{"type":"content_block_delta","delta":null}',
        b'{"type":"content_block_delta","delta":{"text":7}}',
        b'{"type":"message_start","message":[]}',
        b'{"type":"message_delta","usage":{"input_tokens":"x"}}',
    ):
        assert answer.feed(b"data: " + body + b"\n\n") == 0
    assert (answer.unparsed, answer.error) == ({}, None)


def test_a_whole_answer() -> None:
    answer = AnswerReader("messages", "application/json")
    body = {
        "id": "msg_2",
        "type": "message",
        "model": "llama",
        "stop_reason": "max_tokens",
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 32, "output_tokens": 5},
    }
    answer.feed(json.dumps(body).encode())
    answer.finish()
    assert (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens) == (42, 32, 5)
    assert (answer.finish_reason, answer.error) == ("max_tokens", None)


def test_a_whole_answer_that_is_an_error() -> None:
    answer = AnswerReader("messages", "application/json")
    answer.feed(b'{"type":"error","error":{"type":"invalid_request_error","message":"m"}}')
    answer.finish()
    assert answer.error == "invalid_request_error"
