"""`/cohere/v2/chat`: what one event of a stream, or a whole answer, says."""

from __future__ import annotations

from typing import Any

import msgspec

from prefillwatch.wire.facts import AnswerFacts
from prefillwatch.wire.tolerant import TolerantDecoder


class Content(msgspec.Struct, gc=False):
    text: str | None = None
    thinking: str | None = None


class Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct, gc=False):
    function: Function | None = None


class Message(msgspec.Struct, gc=False):
    content: Content | list[Content] | None = None
    tool_plan: str | None = None
    tool_calls: ToolCall | list[ToolCall] | None = None

    def chars(self) -> int:
        contents = self.content if isinstance(self.content, list) else [self.content]
        calls = self.tool_calls if isinstance(self.tool_calls, list) else [self.tool_calls]
        chars = len(self.tool_plan or "")
        for content in contents:
            if content is not None:
                chars += len(content.text or "") + len(content.thinking or "")
        for call in calls:
            if call is not None and call.function is not None:
                chars += len(call.function.name or "") + len(call.function.arguments or "")
        return chars


class Tokens(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    tokens: Tokens | None = None
    cached_tokens: int | None = None


class Delta(msgspec.Struct, gc=False):
    message: Message | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    error: Any = None


class Event(msgspec.Struct, gc=False):
    """An event of a stream, or a whole answer."""

    type: str | None = None
    id: str | None = None
    delta: Delta | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    error: Any = None


_events: TolerantDecoder[Event] = TolerantDecoder(Event)


def read_event(_: bytes, payload: bytes, facts: AnswerFacts) -> None:
    """One event of a stream. Raises UnreadableError when the payload is no JSON."""
    event = _events.decode(payload)
    facts.identify(event.id, None)
    delta = event.delta or Delta()
    chars = delta.message.chars() if delta.message is not None else 0
    if chars:
        facts.add_tokens(0, chars)
    _add_usage(delta.usage, facts)
    if event.type == "message-end":
        facts.end_choice(0, delta.finish_reason or "COMPLETE")
        facts.finished = True
    if error := event.error or delta.error:
        facts.fail(error)


def read_answer(payload: bytes, facts: AnswerFacts) -> None:
    """A whole answer that was not streamed. Raises UnreadableError when it is no JSON."""
    answer = _events.decode(payload)
    facts.identify(answer.id, None)
    _add_usage(answer.usage, facts)
    facts.end_choice(0, answer.finish_reason)
    if answer.error:
        facts.fail(answer.error)
    facts.finished = True


def _add_usage(usage: Usage | None, facts: AnswerFacts) -> None:
    if usage is not None and usage.tokens is not None:
        facts.add_usage(usage.tokens.input_tokens, usage.tokens.output_tokens, usage.cached_tokens)
