"""What it costs to read one event of an answer: the wire code alone, no books, no sockets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tests.bench.programs import BenchError

from prefillwatch.units import NS
from prefillwatch.wire.answer import AnswerReader

EVENTS = 512


def measure(seconds: float) -> dict[str, float]:
    """Nanoseconds of CPU per event, by kind of event; `seconds` for each kind."""
    return {name: per_event(endpoint, events, seconds) for name, (endpoint, events) in cases().items()}


def cases() -> dict[str, tuple[str, list[bytes]]]:
    return {
        "chat, text only": ("chat_completions", made(chat)),
        "chat, usage in every event": ("chat_completions", made(chat_with_usage)),
        "chat, log probabilities": ("chat_completions", made(chat_with_logprobs)),
        "chat, several choices": ("chat_completions", made(lambda i: chat(i, choice=i % 4))),
        "completions": ("completions", made(completion)),
        "responses": ("responses", made(response)),
        "messages": ("messages", made(message)),
        "ten events in one read": ("chat_completions", in_tens(made(chat))),
    }


def per_event(endpoint: str, reads: list[bytes], seconds: float) -> float:
    """Every pass is a new answer, so that learning what its events look like is in the price."""
    spent, passes = 0, 0
    while spent < seconds * NS:
        began = time.thread_time_ns()
        reader = AnswerReader(endpoint, "text/event-stream")
        for read in reads:
            reader.feed(read)
        spent += time.thread_time_ns() - began
        passes += 1
        if reader.token_events != EVENTS:
            raise BenchError(f"{endpoint}: {reader.token_events} of {EVENTS} events found")
    return spent / (passes * EVENTS)


def made(event: Callable[[int], bytes]) -> list[bytes]:
    return [event(i) for i in range(EVENTS)]


def in_tens(events: list[bytes]) -> list[bytes]:
    return [b"".join(events[i : i + 10]) for i in range(0, len(events), 10)]


def data(value: dict[str, Any], event: str = "") -> bytes:
    line = f"data: {json.dumps(value, separators=(',', ':'))}\n\n"
    return (f"event: {event}\n{line}" if event else line).encode()


def chat(i: int, choice: int = 0, **more: Any) -> bytes:
    choices = [{"index": choice, "delta": {"content": f" word{i}"}, "logprobs": None, "finish_reason": None}]
    head = {"id": "chatcmpl-0123456789abcdef0123456789abcdef", "object": "chat.completion.chunk", "created": 1795979249}
    return data({**head, "model": "bench", "choices": choices, **more})


def chat_with_usage(i: int) -> bytes:
    return chat(i, usage={"prompt_tokens": 64, "total_tokens": 65 + i, "completion_tokens": 1 + i})


def chat_with_logprobs(i: int) -> bytes:
    entry = {"token": f" word{i}", "logprob": -i / 977, "bytes": None, "top_logprobs": []}
    choice = {"index": 0, "delta": {"content": f" word{i}"}, "logprobs": {"content": [entry]}, "finish_reason": None}
    return chat(i, choices=[choice])


def completion(i: int) -> bytes:
    choices = [{"index": 0, "text": f" word{i}", "logprobs": None, "finish_reason": None, "stop_reason": None}]
    return data({"id": "cmpl-0123456789abcdef", "object": "text_completion", "model": "bench", "choices": choices})


def response(i: int) -> bytes:
    kind = "response.output_text.delta"
    place = {"content_index": 0, "delta": f" word{i}", "item_id": "msg_ab6127a9befdd14b", "logprobs": []}
    return data({**place, "output_index": 0, "sequence_number": i + 4, "type": kind}, kind)


def message(i: int) -> bytes:
    kind = "content_block_delta"
    return data({"type": kind, "delta": {"type": "text_delta", "text": f" word{i}"}, "index": 0}, kind)
