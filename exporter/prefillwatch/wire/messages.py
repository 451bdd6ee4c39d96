"""`/v1/messages`: typed events. `input_tokens` leaves cached tokens out; usage is cumulative in every event."""

from __future__ import annotations

from typing import Any

import msgspec

from prefillwatch.wire.facts import AnswerFacts
from prefillwatch.wire.tolerant import TolerantDecoder


class Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class Message(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    usage: Usage | None = None
    stop_reason: str | None = None
    type: str | None = None
    error: Any = None


class Delta(msgspec.Struct, gc=False):
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class Event(msgspec.Struct, gc=False):
    type: str = ""
    delta: Delta | None = None
    message: Message | None = None
    usage: Usage | None = None
    error: Any = None


_events: TolerantDecoder[Event] = TolerantDecoder(Event)
_messages: TolerantDecoder[Message] = TolerantDecoder(Message)


def read_event(name: bytes, payload: bytes, facts: AnswerFacts) -> None:
    """One event of a stream. Raises UnreadableError when the payload is no JSON."""
    event = _events.decode(payload)
    kind = event.type or name.decode("utf-8", "replace")
    delta = event.delta
    if kind == "content_block_delta":
        chars = len(delta.text or "") + len(delta.thinking or "") + len(delta.partial_json or "") if delta else 0
        if chars:
            facts.add_tokens(0, chars)
            facts.note_progress(0, event.usage.output_tokens if event.usage is not None else None)
    elif delta is not None:
        facts.end_choice(0, delta.stop_reason)
    if event.message is not None:
        _read_message(event.message, facts)
    if event.usage is not None:
        _read_usage(event.usage, facts)
    if kind == "message_stop":
        facts.finished = True
    elif kind == "error":
        facts.fail(event.error)


def read_answer(payload: bytes, facts: AnswerFacts) -> None:
    """A whole answer that was not streamed. Raises UnreadableError when it is no JSON."""
    message = _messages.decode(payload)
    _read_message(message, facts)
    if message.type == "error" or message.error:
        facts.fail(message.error)
    facts.finished = True


def _read_message(message: Message, facts: AnswerFacts) -> None:
    facts.identify(message.id, message.model)
    facts.end_choice(0, message.stop_reason)
    if message.usage is not None:
        _read_usage(message.usage, facts)


def _read_usage(usage: Usage, facts: AnswerFacts) -> None:
    cached = usage.cache_read_input_tokens
    prompt = usage.input_tokens
    if prompt is not None:
        prompt += max(cached or 0, 0) + max(usage.cache_creation_input_tokens or 0, 0)
    facts.add_usage(prompt, usage.output_tokens, cached)
