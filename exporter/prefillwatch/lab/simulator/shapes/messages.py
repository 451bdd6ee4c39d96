"""`/v1/messages`: content blocks, and usage at both ends of the stream."""

from __future__ import annotations

from typing import Any, Final

from prefillwatch.lab.simulator.shapes.base import Finished, Header, Usage, compact, named_event

_STOP_REASONS: Final = {"length": "max_tokens", "stop": "end_turn"}


class MessagesShape:
    """A request has one choice here."""

    def __init__(self, header: Header) -> None:
        self._header = header

    def first(self, index: int, prompt_tokens: int) -> tuple[bytes, ...]:
        message = self._message([], {"stop_reason": None, "stop_sequence": None}) | {
            "usage": {"input_tokens": prompt_tokens, "output_tokens": 0}
        }
        block = {"type": "text", "text": ""}
        return (
            _event("message_start", {"message": message}),
            _event("content_block_start", {"content_block": block, "index": index}),
        )

    def delta(self, index: int, text: str, finish: str | None, usage: Usage | None) -> bytes:
        del finish, usage
        head = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"'
        return head + text.encode() + b'"},"index":%d}\n\n' % index

    def last(self, choices: list[Finished], usage: Usage) -> tuple[bytes, ...]:
        delta = {"stop_reason": _STOP_REASONS[choices[0].reason], "stop_sequence": None}
        return (
            _event("content_block_stop", {"index": 0}),
            _event("message_delta", {"delta": delta, "usage": _usage(usage)}),
            _event("message_stop", {}),
        )

    def whole(self, choices: list[Finished], usage: Usage) -> bytes:
        content = [{"type": "text", "text": choices[0].text}]
        message = self._message(content, {"stop_reason": _STOP_REASONS[choices[0].reason]})
        return compact(message | {"usage": _usage(usage)})

    def _message(self, content: list[dict[str, str]], stop: dict[str, Any]) -> dict[str, Any]:
        opening = {"id": self._header.id, "type": "message", "role": "assistant", "content": content}
        return opening | {"model": self._header.model, **stop}


def _event(name: str, fields: dict[str, Any]) -> bytes:
    return named_event(name, {"type": name, **fields})


def _usage(usage: Usage) -> dict[str, int]:
    counts = {"input_tokens": usage.prompt, "output_tokens": usage.completion}
    if usage.cached is None:
        return counts
    return counts | {"cache_creation_input_tokens": 0, "cache_read_input_tokens": usage.cached}
