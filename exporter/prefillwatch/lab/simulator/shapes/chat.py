"""`/v1/chat/completions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefillwatch.lab.simulator.shapes.base import (
    FINGERPRINT,
    Finished,
    Header,
    Usage,
    compact,
    data_event,
    full_usage,
    openai_usage,
    openai_usage_with_details,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class ChatShape:
    """A role-only event per choice before its first token; `[DONE]` at the end, after a usage event where asked for."""

    def __init__(self, header: Header, *, include_usage: bool, continuous_usage: bool) -> None:
        self._header = header
        self._include_usage = include_usage
        self._continuous_usage = continuous_usage
        self._stem = compact(self._chunk(choices=None)).removesuffix(b"null}")
        self._heads: dict[int, bytes] = {}

    def first(self, index: int, prompt_tokens: int) -> tuple[bytes, ...]:
        delta = {"role": "assistant", "content": ""}
        chunk = self._chunk([{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}])
        if self._continuous_usage:
            chunk["usage"] = openai_usage(Usage(prompt_tokens, 0)) | {"completion_tokens_details": None}
        return (data_event(chunk | {"prompt_token_ids": None, "prompt_text": None}),)

    def delta(self, index: int, text: str, finish: str | None, usage: Usage | None) -> bytes:
        if finish is None and usage is None:
            return (
                self._head(index) + text.encode() + b'"},"logprobs":null,"finish_reason":null,"token_ids":null}]}\n\n'
            )
        choice: dict[str, Any] = {"index": index, "delta": {"content": text}, "logprobs": None, "finish_reason": finish}
        if finish is not None:
            choice["stop_reason"] = None
        chunk = self._chunk([choice | {"token_ids": None}])
        if usage is not None:
            chunk["usage"] = openai_usage(usage) | {"completion_tokens_details": None}
        if finish is not None and not self._include_usage:
            chunk["system_fingerprint"] = FINGERPRINT
        return data_event(chunk)

    def last(self, choices: list[Finished], usage: Usage) -> tuple[bytes, ...]:
        del choices
        if not self._include_usage:
            return (b"data: [DONE]\n\n",)
        chunk = self._chunk([]) | {"usage": openai_usage_with_details(usage), "system_fingerprint": FINGERPRINT}
        return (data_event(chunk), b"data: [DONE]\n\n")

    def whole(self, choices: list[Finished], usage: Usage) -> bytes:
        return compact(
            self._envelope("chat.completion")
            | {
                "choices": [_whole_choice(choice) for choice in choices],
                "service_tier": None,
                "system_fingerprint": FINGERPRINT,
                "usage": full_usage(usage),
                "prompt_logprobs": None,
                "prompt_token_ids": None,
                "prompt_text": None,
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )

    def _head(self, index: int) -> bytes:
        """The bytes of an event up to its text; they are the same for every token, so they are made once."""
        head = self._heads.get(index)
        if head is None:
            head = self._heads[index] = b'data: %b[{"index":%d,"delta":{"content":"' % (self._stem, index)
        return head

    def _chunk(self, choices: list[dict[str, Any]] | None) -> dict[str, Any]:
        return self._envelope("chat.completion.chunk") | {"choices": choices}

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {"id": self._header.id, "object": kind, "created": self._header.created, "model": self._header.model}


def _whole_choice(choice: Finished) -> Mapping[str, Any]:
    return {
        "index": choice.index,
        "message": {
            "role": "assistant",
            "content": choice.text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        },
        "logprobs": None,
        "finish_reason": choice.reason,
        "stop_reason": None,
        "token_ids": None,
        "routed_experts": None,
    }
