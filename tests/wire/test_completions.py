from __future__ import annotations

import json
from typing import Any

from prefillwatch.wire.answer import AnswerReader


def chunk(*choices: tuple[int, str], finish: str | None = None, **fields: Any) -> bytes:
    body = {
        "id": "cmpl-1",
        "object": "text_completion",
        "model": "llama",
        "choices": [{"index": index, "text": text, "finish_reason": finish} for index, text in choices],
        **fields,
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


def test_a_usual_stream() -> None:
    answer = AnswerReader("completions", "text/event-stream")
    assert [answer.feed(chunk((0, text))) for text in ("", "Once", " upon", " a", " time")] == [0, 1, 1, 1, 1]
    assert answer.feed(chunk((0, "."), finish="length")) == 1
    assert answer.feed(chunk(usage=usage(3, 5))) == 0
    assert answer.feed(b"data: [DONE]\n\n") == 0
    assert (answer.prompt_tokens, answer.completion_tokens, answer.finish_reason) == (3, 5, "length")
    assert answer.finished


def test_several_prompts_share_the_stream_by_index() -> None:
    answer = AnswerReader("completions", "text/event-stream")
    for count in range(1, 5):
        assert answer.feed(chunk((0, "a"), usage=usage(10, count))) == 1
        assert answer.feed(chunk((3, "b"), usage=usage(20, count))) == 0
        assert (answer.others, answer.others_tokens) == ({3: 1}, {3: 1})
    answer.feed(chunk(usage=usage(30, 8)))
    assert (answer.prompt_tokens, answer.completion_tokens) == (30, 8)


def test_a_broken_stream_and_an_error() -> None:
    answer = AnswerReader("completions", "text/event-stream")
    assert answer.feed(chunk((0, "a"))) == 1
    assert answer.feed(b'data: {"choices":[{"text":null},{"text":5},null]}\n\n') == 0
    assert answer.feed(b'data: {"error":{"type":"InternalServerError"}}\n\n') == 0
    assert (answer.error, answer.token_events) == ("InternalServerError", 1)


def test_a_whole_answer() -> None:
    answer = AnswerReader("completions", "application/json; charset=utf-8")
    answer.feed(chunk((0, "all of it"), finish="stop", usage=usage(4, 3))[6:])
    answer.finish()
    assert (answer.prompt_tokens, answer.completion_tokens, answer.finish_reason) == (4, 3, "stop")


def test_usage_of_an_embedding_is_read() -> None:
    answer = AnswerReader("embeddings", "application/json")
    answer.feed(b'{"object":"list","data":[{"embedding":[0.1,0.2]}],"model":"e5","usage":{"prompt_tokens":7}}')
    answer.finish()
    assert (answer.prompt_tokens, answer.model, answer.completion_tokens) == (7, "e5", None)
