from __future__ import annotations

import json
from typing import Any

import pytest

from prefillwatch.wire.answer import AnswerReader


def event(body: Any) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def delta(index: int = 0, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"index": index, "delta": fields, "finish_reason": finish}


def chunk(*choices: dict[str, Any], **fields: Any) -> bytes:
    return event({"id": "chatcmpl-1", "model": "llama", "choices": list(choices), **fields})


def reader() -> AnswerReader:
    return AnswerReader("chat_completions", "text/event-stream; charset=utf-8")


DONE = b"data: [DONE]\n\n"


def test_a_usual_stream() -> None:
    answer = reader()
    assert answer.feed(chunk(delta(role="assistant", content=""))) == 0
    assert answer.feed(chunk(delta(content="Hello"))) == 1
    assert answer.chars_in_read == 5
    assert answer.feed(chunk(delta(content=" you"), id="other")) == 1
    assert answer.feed(chunk(delta(content="", finish="stop"))) == 0
    assert answer.chars_in_read == 0
    assert (answer.finish_reason, answer.finished) == ("stop", False)
    assert answer.feed(chunk(usage={"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11})) == 0
    assert answer.feed(DONE) == 0
    assert (answer.response_id, answer.model) == ("chatcmpl-1", "llama")
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (9, 2, None)
    assert (answer.finished, answer.error, answer.complete, answer.unparsed) == (True, None, True, {})
    assert answer.token_events == 2


def test_an_opener_and_nothing_else_is_no_token() -> None:
    answer = reader()
    reads = [chunk(delta(role="assistant", content="")), chunk(delta(finish="stop")), DONE]
    assert [answer.feed(read) for read in reads] == [0, 0, 0]
    assert answer.token_events == 0


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("content", [None, ""])
def test_reasoning_text_counts(key: str, content: str | None) -> None:
    answer = reader()
    thinking: dict[str, Any] = {key: "Hmm"}
    assert answer.feed(chunk(delta(content=content, **thinking))) == 1
    assert answer.chars_in_read == 3
    assert answer.feed(chunk(delta(content="So"))) == 1


def test_an_answer_of_tool_calls_alone_counts() -> None:
    answer = reader()

    def call(**function: Any) -> bytes:
        return chunk(delta(tool_calls=[{"index": 0, "type": "function", "function": function}]))

    assert answer.feed(call(name="weather", arguments="")) == 1
    assert answer.feed(call(arguments='{"city"')) == 1
    assert answer.feed(call(arguments="")) == 0
    assert answer.feed(call(arguments={"city": "Bonn"})) == 1
    assert answer.feed(chunk(delta(tool_calls=[{"custom": {"name": "sql", "input": "select"}}]))) == 1
    assert answer.chars_in_read == 9
    assert answer.feed(chunk(delta(tool_calls=[], content=None))) == 0
    assert answer.feed(chunk(delta(function_call={"name": "f", "arguments": "{}"}))) == 1


def test_refusals_and_content_parts_count() -> None:
    answer = reader()
    assert answer.feed(chunk(delta(refusal="I cannot"))) == 1
    assert answer.feed(chunk(delta(content=[{"type": "text", "text": "abc"}, {"type": "text", "text": ""}]))) == 1
    assert answer.chars_in_read == 3
    assert answer.feed(chunk(delta(content=[]))) == 0


def test_spoken_words_count_and_sound_does_not() -> None:
    answer = reader()
    assert answer.feed(chunk(delta(content=None, audio={"id": "audio-1", "transcript": "Good"}))) == 1
    assert answer.chars_in_read == 4
    assert answer.feed(chunk(delta(audio={"data": "UklGRg=="}))) == 0
    assert answer.feed(chunk(delta(audio={"transcript": ""}))) == 0
    assert answer.feed(chunk(delta(audio={"expires_at": 1}))) == 0


def test_choices_are_told_apart() -> None:
    answer = reader()
    assert answer.feed(chunk(delta(1, content="b"))) == 0
    assert answer.others == {1: 1}
    assert answer.feed(chunk(delta(0, content="a"))) == 1
    assert not answer.others
    assert answer.feed(chunk(delta(0, content="a"), delta(2, content="c"), delta(2, content="c"))) == 1
    assert answer.others == {2: 2}
    assert answer.token_events == 5
    for _ in range(5):
        assert answer.feed(chunk(delta(1, content="more"))) == 0
        assert answer.others == {1: 1}
        assert answer.feed(chunk(delta(0, content="more"))) == 1
        assert not answer.others


@pytest.mark.parametrize("index", [None, "1", -3, 1.5, True])
def test_an_odd_choice_index_is_the_first_choice(index: object) -> None:
    answer = reader()
    assert answer.feed(chunk({"index": index, "delta": {"content": "a"}})) == 1


def test_choice_indexes_without_end_share_one_book() -> None:
    answer = reader()
    for index in range(4000, 12_000, 7):
        answer.feed(chunk(delta(index, content="a"), usage={"completion_tokens": 1}))
    assert len(answer._choice_tokens) < 20


@pytest.mark.parametrize(
    "body",
    [
        {"usage": {"prompt_tokens": 3}},
        {"choices": []},
        {"choices": None},
        [],
        "x",
        7,
        None,
        True,
        {},
        {"choices": [None]},
        {"choices": [[]]},
        {"choices": {}},
        {"choices": [{"delta": None}]},
        {"choices": [{"delta": []}]},
        {"choices": [{"delta": {"content": 5}}]},
        {"choices": [{"delta": {"content": {}, "tool_calls": {}}}]},
        {"choices": [{"delta": {"tool_calls": [None, {"function": None}, {"function": {"name": None}}]}}]},
        {"choices": [{"finish_reason": 5}]},
        {"usage": []},
        {"usage": {"prompt_tokens": "9", "completion_tokens": None, "prompt_tokens_details": 5}},
    ],
)
def test_events_of_odd_shape_are_no_tokens_and_no_trouble(body: object) -> None:
    answer = reader()
    assert answer.feed(event(body)) == 0
    assert not answer.others
    assert (answer.error, answer.unparsed, answer.completion_tokens) == (None, {}, None)
    assert answer.feed(chunk(delta(content="still here"))) == 1


def test_a_field_of_odd_shape_costs_only_itself() -> None:
    answer = reader()
    body = {
        "id": 5,
        "choices": [None, {"index": 0, "delta": {"content": "a", "reasoning": {"x": 1}}, "finish_reason": ["stop"]}],
        "usage": {"prompt_tokens": 7, "completion_tokens": "2", "prompt_tokens_details": {"cached_tokens": 4}},
    }
    assert answer.feed(event(body)) == 1
    assert (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens) == (7, 4, None)


def test_usage_in_every_chunk_is_cumulative_and_gives_exact_tokens() -> None:
    answer = reader()

    def read(content: str, count: int) -> tuple[int, int]:
        return answer.feed(chunk(delta(content=content), usage=usage(40, count))), answer.tokens_in_read

    assert read("", 0) == (0, 0)
    assert answer.prompt_tokens == 40
    assert read("a", 1) == (1, 1)
    assert read("bcd", 4) == (1, 3)
    assert read("", 5) == (0, 0)  # half of a character: the token comes with the next text
    assert read("é", 6) == (1, 2)
    assert (
        answer.feed(chunk(delta(content="x"), usage=usage(40, 7)) + chunk(delta(content="y"), usage=usage(40, 9))) == 2
    )
    assert answer.tokens_in_read == 3
    assert answer.feed(chunk(usage=usage(40, 9))) == 0
    assert answer.feed(chunk(usage=usage(40, 9))) == 0
    assert answer.completion_tokens == 9


def usage(prompt: int, completion: int, **details: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion, **details}


def test_usage_per_choice_adds_up_and_the_last_word_is_the_total() -> None:
    answer = reader()
    for count in range(1, 6):
        assert answer.feed(chunk(delta(0, content="a"), usage=usage(8, count))) == 1
        assert answer.tokens_in_read == 1
        assert answer.feed(chunk(delta(1, content="b"), usage=usage(8, 2 * count))) == 0
        assert (answer.tokens_in_read, answer.others_tokens) == (0, {1: 2})
    assert answer.completion_tokens == 15
    answer.feed(chunk(usage=usage(8, 16)))
    assert answer.completion_tokens == 16


def test_usage_once_in_the_last_text_chunk_says_nothing_about_that_chunk() -> None:
    answer = reader()
    answer.feed(chunk(delta(content="a")))
    answer.feed(chunk(delta(content="b")))
    assert answer.feed(chunk(delta(content="c", finish="stop"), usage=usage(8, 30))) == 1
    assert (answer.tokens_in_read, answer.completion_tokens) == (0, 30)


def test_usage_in_the_middle_and_twice_keeps_the_largest() -> None:
    answer = reader()
    answer.feed(chunk(delta(content="a")))
    answer.feed(event({"usage": usage(8, 1)}))
    answer.feed(chunk(delta(content="b")))
    answer.feed(event({"usage": usage(8, 2)}))
    answer.feed(event({"usage": usage(8, 2)}))
    answer.feed(event({"usage": usage(0, 0)}))
    assert (answer.prompt_tokens, answer.completion_tokens) == (8, 2)


@pytest.mark.parametrize("count", [-5, 1 << 60, 10**30])
def test_senseless_counts_are_ignored(count: int) -> None:
    answer = reader()
    answer.feed(chunk(delta(content="a"), usage=usage(count, count)))
    assert (answer.prompt_tokens, answer.completion_tokens) == (None, None)


def test_cached_tokens_are_part_of_the_prompt() -> None:
    answer = reader()
    answer.feed(chunk(usage=usage(100, 1, prompt_tokens_details={"cached_tokens": 96})))
    assert (answer.prompt_tokens, answer.cached_tokens) == (100, 96)


def test_an_error_after_tokens() -> None:
    answer = reader()
    for _ in range(3):
        assert answer.feed(chunk(delta(content="a"))) == 1
    assert answer.feed(event({"error": {"message": "the prompt", "code": 504}})) == 0
    assert answer.feed(DONE) == 0
    assert (answer.error, answer.finished, answer.token_events) == ("504", True, 3)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"error": {"message": "m", "type": "BadRequestError", "param": None, "code": 400}}, "BadRequestError"),
        ({"object": "error", "message": "m", "type": "x"}, "error"),
        ({"error": "something went wrong with the prompt"}, "error"),
        ({"error": {"type": "contains a prompt"}}, "error"),
        ({"error": {"code": "x" * 500}}, "error"),
        ({"error": {"code": "timeout"}, "choices": []}, "timeout"),
        ({"error": {"code": 504}, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]}, "504"),
    ],
)
def test_error_codes_are_short_and_never_the_message(body: object, code: str) -> None:
    answer = reader()
    answer.feed(event(body))
    assert answer.error == code


def test_the_name_of_the_event_can_say_error() -> None:
    answer = reader()
    answer.feed(b'event: error\ndata: {"message":"x"}\n\n')
    assert answer.error == "error"


@pytest.mark.parametrize("error", [None, {}, "", {"code": 0, "message": "fine"}, "note"])
def test_an_error_key_beside_choices_is_no_error(error: object) -> None:
    answer = reader()
    assert answer.feed(chunk(delta(role="assistant"), error=error)) == 0
    assert answer.feed(chunk(delta(content="a"), error=error)) == 1
    assert answer.feed(chunk({"index": 0, "delta": {}, "finish_reason": "stop"}, error=error)) == 0
    assert (answer.error, answer.finish_reason) == (None, "stop")

    whole = AnswerReader("chat_completions", "application/json")
    whole.feed(json.dumps({"choices": [{"message": {"content": "a"}}], "error": error}).encode())
    whole.finish()
    assert whole.error is None


@pytest.mark.parametrize("error", [None, {}, "", 0, False])
def test_an_empty_error_is_no_error(error: object) -> None:
    answer = reader()
    answer.feed(event({"error": error}))
    assert answer.error is None


def test_text_that_only_half_fits_json_still_counts() -> None:
    answer = reader()
    assert answer.feed(b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n') == 1  # half of a surrogate pair
    assert answer.feed(b'data: {"choices":[{"delta":{"content":"a"},"logprob":NaN}]}\n\n') == 1
    assert answer.feed(b'data: {"choices":[{"delta":{"content":"\xe5\xa5"}}]}\n\n') == 1
    assert answer.unparsed == {}


def test_a_whole_answer() -> None:
    answer = AnswerReader("chat_completions", "application/json")
    body = json.dumps(
        {
            "id": "chatcmpl-2",
            "model": "llama",
            "choices": [
                {"index": 1, "message": {"content": "b"}, "finish_reason": "length"},
                {"index": 0, "message": {"content": "a"}, "finish_reason": "stop"},
            ],
            "usage": usage(12, 2, prompt_tokens_details={"cached_tokens": 3}),
        }
    ).encode()
    assert [answer.feed(body[:50]), answer.feed(body[50:])] == [0, 0]
    assert answer.completion_tokens is None
    answer.finish()
    assert (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens) == (12, 3, 2)
    assert (answer.response_id, answer.model, answer.finish_reason) == ("chatcmpl-2", "llama", "stop")
    assert (answer.finished, answer.error) == (True, None)


def test_a_whole_answer_that_is_an_error() -> None:
    answer = AnswerReader("chat_completions", "application/json")
    answer.feed(b'{"error":{"message":"no","type":"NotFoundError","code":404}}')
    answer.finish()
    assert answer.error == "NotFoundError"
