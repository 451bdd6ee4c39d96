from __future__ import annotations

import json
from typing import Any

import pytest

from prefillwatch.wire.answer import AnswerReader


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({**fields, 'type': kind})}\n\n".encode()


def reader() -> AnswerReader:
    return AnswerReader("responses", "text/event-stream")


def response(status: str, **fields: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "model": "llama", "status": status, **fields}


USAGE = {"input_tokens": 50, "input_tokens_details": {"cached_tokens": 32}, "output_tokens": 7, "total_tokens": 57}


def test_a_usual_stream_ends_with_its_own_event() -> None:
    answer = reader()
    text = "response.output_text.delta"
    silent = [
        event("response.created", response=response("in_progress"), sequence_number=0),
        event("response.in_progress", response=response("in_progress"), sequence_number=1),
        event("response.output_item.added", item={"type": "message", "content": []}, sequence_number=2),
        event("response.content_part.added", part={"type": "output_text", "text": ""}, sequence_number=3),
    ]
    assert [answer.feed(read) for read in silent] == [0] * 4
    assert answer.response_id == "resp_1"
    assert [answer.feed(event(text, delta=f"t{n}", item_id="m", sequence_number=n)) for n in range(4, 14)] == [1] * 10
    assert answer.feed(event(text, delta="", item_id="m", sequence_number=14)) == 0
    assert answer.feed(event("response.output_text.done", text="t4t5", sequence_number=15)) == 0
    assert not answer.finished
    assert answer.feed(event("response.completed", response=response("completed", usage=USAGE))) == 0
    assert (answer.finished, answer.finish_reason, answer.error) == (True, "completed", None)
    assert (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens) == (50, 32, 7)
    assert answer.token_events == 10


@pytest.mark.parametrize(
    "kind",
    [
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.refusal.delta",
        "response.function_call_arguments.delta",
        "response.mcp_call_arguments.delta",
        "response.custom_tool_call_input.delta",
        "response.code_interpreter_call_code.delta",
    ],
)
def test_every_kind_of_generated_text_counts(kind: str) -> None:
    answer = reader()
    assert answer.feed(event(kind, delta="x", sequence_number=9)) == 1
    assert answer.feed(event(kind, delta="yz", sequence_number=10)) == 1
    assert answer.chars_in_read == 2


def test_failure_is_an_error_and_usage_in_it_is_kept() -> None:
    answer = reader()
    failed = response("failed", error={"code": "server_error", "message": "m"}, usage=USAGE)
    assert answer.feed(event("response.failed", response=failed)) == 0
    assert (answer.error, answer.finished, answer.finish_reason) == ("server_error", True, "failed")
    assert answer.prompt_tokens == 50


def test_running_into_a_limit_is_an_end_and_no_error() -> None:
    answer = reader()
    answer.feed(
        event(
            "response.incomplete", response=response("incomplete", incomplete_details={"reason": "max_output_tokens"})
        )
    )
    assert (answer.error, answer.finished, answer.finish_reason) == (None, True, "max_output_tokens")


@pytest.mark.parametrize("details", [None, {}, {"reason": "engine_died"}])
def test_incomplete_for_another_reason_is_an_error(details: object) -> None:
    answer = reader()
    answer.feed(event("response.incomplete", response=response("incomplete", incomplete_details=details)))
    assert (answer.error, answer.finished) == ("incomplete", True)


def test_error_events() -> None:
    answer = reader()
    answer.feed(event("error", code="rate_limited", message="m"))
    assert answer.error == "rate_limited"
    answer = reader()
    answer.feed(b'data: {"error":{"type":"InternalServerError"}}\n\n')
    assert answer.error == "InternalServerError"


def test_odd_shapes() -> None:
    answer = reader()
    for body in (
        b"[]",
        b"null",
        b'"x"',
        b'{"type":5,"delta":"x"}',
        b'{"type":"response.output_text.delta","delta":{}}',
    ):
        assert answer.feed(b"data: " + body + b"\n\n") == 0
    assert answer.feed(b'event: response.output_text.delta\ndata: {"delta":"x"}\n\n') == 1
    assert answer.unparsed == {}


def test_a_whole_answer() -> None:
    answer = AnswerReader("responses", "application/json")
    answer.feed(json.dumps(response("completed", usage=USAGE, error=None, incomplete_details=None)).encode())
    answer.finish()
    assert (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens) == (50, 32, 7)
    assert (answer.finished, answer.error, answer.finish_reason) == (True, None, "completed")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (response("failed", error={"code": "server_error"}), "server_error"),
        (response("cancelled"), "cancelled"),
        ({"error": {"type": "BadRequestError", "code": 400}}, "BadRequestError"),
        ({"object": "error", "message": "m"}, "error"),
    ],
)
def test_a_whole_answer_that_failed(body: dict[str, Any], code: str) -> None:
    answer = AnswerReader("responses", "application/json")
    answer.feed(json.dumps(body).encode())
    answer.finish()
    assert answer.error == code
