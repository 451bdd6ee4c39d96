"""Streams and answers of servers' own endpoints, as they were seen or as their sources write them."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.wire.answer import AnswerReader

SSE = "text/event-stream"


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def llamacpp(text: str, made: int, **more: Any) -> bytes:
    return event(index=0, content=text, tokens=[7], stop=False, tokens_predicted=made, tokens_evaluated=31, **more)


LAST = {
    "index": 0,
    "content": "",
    "stop": True,
    "stop_type": "limit",
    "model": "tiny.gguf",
    "tokens_predicted": 3,
    "tokens_evaluated": 31,
    "timings": {"cache_n": 20, "prompt_n": 11, "predicted_n": 3},
}


def test_llamacpp_streams_a_token_per_event_and_tells_sizes_in_the_last() -> None:
    answer = AnswerReader("native", SSE)
    assert [answer.feed(llamacpp(text, made)) for made, text in enumerate((" a", " b", " c"), 1)] == [1, 1, 1]
    assert answer.tokens_in_read == 1
    assert answer.feed(event(**LAST)) == 0
    assert (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens) == (31, 20, 3)
    assert (answer.model, answer.finish_reason, answer.over) == ("tiny.gguf", "limit", {0})


def test_llamacpp_answers_several_prompts_with_a_list() -> None:
    answer = AnswerReader("native", "application/json; charset=utf-8")
    answer.feed(json.dumps([LAST, LAST | {"index": 1, "tokens_predicted": 5}]).encode())
    answer.finish()
    assert (answer.completion_tokens, answer.finished) == (8, True)


@pytest.mark.parametrize("whole", [True, False])
def test_sglang_counts_tokens_whether_it_repeats_the_text_or_not(whole: bool) -> None:
    answer = AnswerReader("native", SSE)
    events = 0
    for made in (1, 2, 3, 5):
        text = " word" * made if whole else " word"
        meta = {"id": "a1", "prompt_tokens": 40, "completion_tokens": made, "cached_tokens": 16, "finish_reason": None}
        events += answer.feed(event(text=text, meta_info=meta))
    assert (events, answer.tokens_in_read, answer.chars_in_read) == (4, 2, 1)
    meta = {"prompt_tokens": 40, "completion_tokens": 5, "finish_reason": {"type": "length", "length": 5}}
    assert answer.feed(event(text=" word" * 5, meta_info=meta)) == 0
    answer.feed(b"data: [DONE]\n\n")
    assert (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens) == (40, 16, 5)
    assert (answer.response_id, answer.finished, answer.over) == ("a1", True, {0})


def test_tgi_counts_tokens_by_index() -> None:
    answer = AnswerReader("native", SSE)
    for index in (1, 2):
        token = {"id": 5, "text": " word", "special": False}
        assert answer.feed(event(index=index, token=token, generated_text=None, details=None)) == 1
        assert answer.others is None
    details = {"finish_reason": "length", "generated_tokens": 3, "input_length": 17}
    last = event(index=3, token={"id": 6, "text": " end"}, generated_text=" word word end", details=details)
    assert answer.feed(last) == 1
    assert (answer.prompt_tokens, answer.completion_tokens, answer.finish_reason) == (17, 3, "length")


def test_tokens_that_come_as_ids_are_counted() -> None:
    answer = AnswerReader("native", SSE)
    assert answer.feed(event(request_id="r", choices=[{"index": 0, "token_ids": [1, 2, 3]}])) == 1
    assert answer.tokens_in_read == 3
    assert answer.feed(event(choices=[{"index": 1, "token_ids": [4]}])) == 0
    assert answer.others == {1: 1}
    answer.feed(event(choices=[{"index": 0, "token_ids": [], "finish_reason": "stop"}]))
    assert (answer.completion_tokens, answer.over, answer.response_id) == (4, {0}, "r")


@pytest.mark.parametrize("chat", [True, False])
def test_ollama_writes_lines(chat: bool) -> None:
    answer = AnswerReader("native", "application/x-ndjson")
    lines = b""
    for text in ("", " a", " b"):
        said = {"message": {"role": "assistant", "content": text}} if chat else {"response": text}
        lines += json.dumps({"model": "llama3", "done": False, **said}).encode() + b"\n"
    assert answer.feed(lines) == 2
    end = {"model": "llama3", "done": True, "done_reason": "stop", "prompt_eval_count": 26, "eval_count": 2}
    answer.feed(json.dumps(end).encode() + b"\n")
    assert (answer.prompt_tokens, answer.completion_tokens) == (26, 2)
    assert (answer.model, answer.finish_reason, answer.finished) == ("llama3", "stop", True)


def test_an_error_in_the_stream() -> None:
    answer = AnswerReader("native", SSE)
    answer.feed(event(error={"code": 500, "type": "server_error", "message": "secret"}))
    assert answer.error == "server_error"


STREAMS = {
    "llama.cpp": [llamacpp(f" w{made}", made) for made in range(1, 9)] + [event(**LAST)],
    "SGLang": [
        event(text=" word" * made, meta_info={"completion_tokens": made, "prompt_tokens": 9}) for made in range(1, 9)
    ],
    "vLLM": [event(choices=[{"index": 0, "token_ids": [made]}]) for made in range(1, 9)],
}


@pytest.mark.parametrize("server", STREAMS)
@given(cuts=st.lists(st.integers(1, 3000), max_size=12))
def test_wherever_it_is_cut_the_facts_are_the_same(server: str, cuts: list[int]) -> None:
    stream = b"".join(STREAMS[server])
    whole, cut = (AnswerReader("native", SSE, templates=templates) for templates in (False, True))
    whole.feed(stream)
    bounds = [0, *sorted(min(each, len(stream)) for each in cuts), len(stream)]
    events = sum(cut.feed(stream[start:end]) for start, end in itertools.pairwise(bounds))
    assert (events, cut.token_events) == (8, whole.token_events)
    assert (cut.prompt_tokens, cut.completion_tokens) == (whole.prompt_tokens, whole.completion_tokens)
