"""`/v1/chat/completions`: what one streamed chunk, or a whole answer, says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from prefillwatch.wire.facts import AnswerFacts, choice_index
from prefillwatch.wire.tolerant import TolerantDecoder


class Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None
    input: str | None = None  # of custom tools


class ToolCall(msgspec.Struct, gc=False):
    function: Function | None = None
    custom: Function | None = None


class ContentPart(msgspec.Struct, gc=False):
    text: str | None = None


class Audio(msgspec.Struct, gc=False):
    """Speech with the words that are spoken; the sound itself is no text."""

    transcript: str | None = None


class Message(msgspec.Struct, gc=False):
    """A delta of a stream, or the message of a whole answer."""

    content: str | list[ContentPart] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Function | None = None
    audio: Audio | None = None


class Choice(msgspec.Struct, gc=False):
    index: int | None = None
    delta: Message | None = None
    finish_reason: str | None = None

    def chars(self) -> int:
        """Characters of generated text in it."""
        return message_chars(self.delta) if self.delta is not None else 0


class PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None

    @property
    def cached(self) -> int | None:
        return self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details is not None else None


class Timings(msgspec.Struct, gc=False):
    """llama.cpp's account of one request, in its last event whether usage was asked for or not."""

    prompt_n: int | None = None  # read, without those of the cache
    cache_n: int | None = None
    predicted_n: int | None = None

    def add_to(self, facts: AnswerFacts) -> None:
        read = (self.prompt_n or 0) + (self.cache_n or 0)
        facts.add_usage(read or None, self.predicted_n, self.cache_n)


class Chunk(msgspec.Struct, gc=False):
    choices: list[Choice] | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    id: str | None = None
    model: str | None = None
    object: str | None = None
    error: Any = None


_chunks: TolerantDecoder[Chunk] = TolerantDecoder(Chunk)


def read_event(name: bytes, payload: bytes, facts: AnswerFacts) -> None:
    """One event of a stream. Raises UnreadableError when the payload is no JSON."""
    read_chunk(name, _chunks.decode(payload), facts)


def read_chunk(name: bytes, chunk: Any, facts: AnswerFacts) -> None:
    """A decoded chunk, of chat or of completions: they differ in where a choice keeps its text."""
    usage = chunk.usage
    said = usage.completion_tokens if usage is not None else None
    choices: Sequence[Any] = chunk.choices or ()
    for choice in choices:
        chars = choice.chars()
        index = choice_index(choice.index)
        if chars:
            facts.add_tokens(index, chars)
            facts.note_progress(index, said)
        if choice.finish_reason:
            facts.end_choice(index, choice.finish_reason)
    if usage is not None:
        sender = choice_index(choices[0].index) if len(choices) == 1 else None
        facts.add_usage(usage.prompt_tokens, said, usage.cached, sender)
    read_frame(name, chunk, facts)


def read_answer(payload: bytes, facts: AnswerFacts) -> None:
    """A whole answer that was not streamed. Raises UnreadableError when it is no JSON."""
    chunk = _chunks.decode(payload)
    for choice in chunk.choices or ():
        facts.end_choice(choice_index(choice.index), choice.finish_reason)
    if chunk.usage is not None:
        facts.add_usage(chunk.usage.prompt_tokens, chunk.usage.completion_tokens, chunk.usage.cached)
    read_frame(b"", chunk, facts)
    facts.finished = True


def read_frame(name: bytes, chunk: Any, facts: AnswerFacts) -> None:
    """What surrounds the choices, the same for chat and for text completions."""
    facts.identify(chunk.id, chunk.model)
    if chunk.timings is not None and chunk.usage is None:
        chunk.timings.add_to(facts)
    has_failed = name == b"error"
    if chunk.error or chunk.object == "error":
        # Beside choices it is an annotation of a gateway, unless a choice ended so.
        has_failed = has_failed or not chunk.choices or any(each.finish_reason == "error" for each in chunk.choices)
    if has_failed:
        facts.fail(chunk.error)


def message_chars(message: Message) -> int:
    """Characters of generated text in a delta: content, reasoning, refusal, tool calls and what is spoken."""
    content = message.content
    chars = len(content) if isinstance(content, str) else sum(len(part.text or "") for part in content or ())
    for text in (message.reasoning, message.reasoning_content, message.refusal):
        if text:
            chars += len(text)
    if message.audio is not None:
        chars += len(message.audio.transcript or "")
    if message.function_call is not None:
        chars += _function_chars(message.function_call)
    for call in message.tool_calls or ():
        for function in (call.function, call.custom):
            if function is not None:
                chars += _function_chars(function)
    return chars


def _function_chars(function: Function) -> int:
    arguments = function.arguments
    if isinstance(arguments, dict):
        arguments = msgspec.json.encode(arguments).decode()
    return len(function.name or "") + len(arguments or "") + len(function.input or "")
