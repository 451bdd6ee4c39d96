"""`/v1/completions`: what one streamed chunk, or a whole answer, says. Several prompts share one stream by index."""

from __future__ import annotations

from typing import Any

import msgspec

from prefillwatch.wire.chat import Timings, Usage, read_chunk, read_frame
from prefillwatch.wire.facts import AnswerFacts, choice_index
from prefillwatch.wire.tolerant import TolerantDecoder


class Choice(msgspec.Struct, gc=False):
    index: int | None = None
    text: str | None = None
    finish_reason: str | None = None

    def chars(self) -> int:
        """Characters of generated text in it."""
        return len(self.text or "")


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


def read_answer(payload: bytes, facts: AnswerFacts) -> None:
    """A whole answer that was not streamed. Raises UnreadableError when it is no JSON."""
    chunk = _chunks.decode(payload)
    for choice in chunk.choices or ():
        facts.end_choice(choice_index(choice.index), choice.finish_reason)
    if chunk.usage is not None:
        facts.add_usage(chunk.usage.prompt_tokens, chunk.usage.completion_tokens, chunk.usage.cached)
    read_frame(b"", chunk, facts)
    facts.finished = True
