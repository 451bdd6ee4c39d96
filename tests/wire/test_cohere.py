from __future__ import annotations

import json
from typing import Any

from prefillwatch.wire.answer import AnswerReader


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: ".encode() + json.dumps({"type": kind, **fields}).encode() + b"\n\n"


def delta(text: str) -> bytes:
    return event("content-delta", index=0, delta={"message": {"content": {"text": text}}})


def test_a_stream() -> None:
    answer = AnswerReader("cohere_chat", "text/event-stream")
    assert answer.feed(event("message-start", id="c1", delta={"message": {"role": "assistant", "content": []}})) == 0
    assert answer.feed(event("content-start", index=0, delta={"message": {"content": {"text": ""}}})) == 0
    assert answer.feed(delta("Once") + delta(" upon")) == 2
    call = {"function": {"name": "look", "arguments": "{"}}
    assert answer.feed(event("tool-call-start", delta={"message": {"tool_calls": call}})) == 1
    usage = {"tokens": {"input_tokens": 30, "output_tokens": 4}}
    assert answer.feed(event("message-end", delta={"finish_reason": "COMPLETE", "usage": usage})) == 0
    assert (answer.prompt_tokens, answer.completion_tokens, answer.response_id) == (30, 4, "c1")
    assert (answer.finish_reason, answer.finished) == ("COMPLETE", True)


def test_a_whole_answer() -> None:
    answer = AnswerReader("cohere_chat", "application/json")
    message = {"role": "assistant", "content": [{"type": "text", "text": "all"}]}
    usage = {"tokens": {"input_tokens": 30, "output_tokens": 4}}
    answer.feed(json.dumps({"id": "c1", "finish_reason": "MAX_TOKENS", "message": message, "usage": usage}).encode())
    answer.finish()
    assert (answer.prompt_tokens, answer.completion_tokens, answer.finish_reason) == (30, 4, "MAX_TOKENS")
