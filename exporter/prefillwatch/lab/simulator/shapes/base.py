"""What every answer is made from, and what every endpoint's shape can do."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Protocol

FINGERPRINT: Final = "vllm-0.33.0-sim"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts. `cached` is None where the server does not tell."""

    prompt: int
    completion: int
    cached: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """A choice that has ended."""

    index: int
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Header:
    """What an answer carries in every part: its id, time of creation in Unix seconds, and the model's name."""

    id: str
    created: int
    model: str


class Shape(Protocol):
    """One endpoint's way to answer. Every bytes object is one event, sent as a chunk of its own."""

    def first(self, index: int, prompt_tokens: int) -> tuple[bytes, ...]:
        """What comes right before the first token of a choice."""

    def delta(self, index: int, text: str, finish: str | None, usage: Usage | None) -> bytes:
        """Generated text. `usage` is the choice's so far, given where the client asked for it on every event."""

    def last(self, choices: list[Finished], usage: Usage) -> tuple[bytes, ...]:
        """What comes after the last token of the last choice."""

    def whole(self, choices: list[Finished], usage: Usage) -> bytes:
        """The answer to a request without `stream`."""


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def data_event(value: Any) -> bytes:
    return b"data: " + compact(value) + b"\n\n"


def named_event(name: str, value: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + compact(value) + b"\n\n"


def openai_usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt,
        "total_tokens": usage.prompt + usage.completion,
        "completion_tokens": usage.completion,
    }


def openai_usage_with_details(usage: Usage) -> dict[str, Any]:
    details = {} if usage.cached is None else {"prompt_tokens_details": {"cached_tokens": usage.cached}}
    return openai_usage(usage) | details


def full_usage(usage: Usage) -> dict[str, Any]:
    """The usage of a whole answer, where vLLM writes every field it has."""
    cached = {"cached_tokens": usage.cached, "created_cache_tokens": None, "multimodal_tokens": None}
    details = None if usage.cached is None else cached
    return openai_usage(usage) | {"prompt_tokens_details": details, "completion_tokens_details": None}
