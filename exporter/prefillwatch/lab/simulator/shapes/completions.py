"""`/v1/completions`: as chat, without the role-only event and with `text` where chat has a delta."""

from __future__ import annotations

from typing import Any, Final

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

_TAIL: Final = (
    b'","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}\n\n'
)


class CompletionShape:
    """Choice indexes run over prompts first: with n answers each, prompt p has the choices from p × n on."""

    def __init__(self, header: Header, *, include_usage: bool) -> None:
        self._header = header
        self._include_usage = include_usage
        self._stem = compact(self._envelope() | {"choices": None}).removesuffix(b"null}")
        self._heads: dict[int, bytes] = {}

    def first(self, index: int, prompt_tokens: int) -> tuple[bytes, ...]:
        del index, prompt_tokens
        return ()

    def delta(self, index: int, text: str, finish: str | None, usage: Usage | None) -> bytes:
        if finish is None and usage is None:
            return self._head(index) + text.encode() + _TAIL
        choice = {"index": index, "text": text, "logprobs": None, "finish_reason": finish, "stop_reason": None}
        chunk: dict[str, Any] = self._envelope() | {"choices": [choice | {"prompt_token_ids": None, "token_ids": None}]}
        if usage is not None:
            chunk["usage"] = openai_usage(usage)
        if finish is not None and not self._include_usage:
            chunk["system_fingerprint"] = FINGERPRINT
        return data_event(chunk)

    def last(self, choices: list[Finished], usage: Usage) -> tuple[bytes, ...]:
        del choices
        if not self._include_usage:
            return (b"data: [DONE]\n\n",)
        chunk = self._envelope() | {
            "choices": [],
            "usage": openai_usage_with_details(usage),
            "system_fingerprint": FINGERPRINT,
        }
        return (data_event(chunk), b"data: [DONE]\n\n")

    def whole(self, choices: list[Finished], usage: Usage) -> bytes:
        return compact(
            self._envelope()
            | {
                "choices": [_whole_choice(choice) for choice in choices],
                "service_tier": None,
                "system_fingerprint": FINGERPRINT,
                "usage": full_usage(usage),
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )

    def _head(self, index: int) -> bytes:
        head = self._heads.get(index)
        if head is None:
            head = self._heads[index] = b'data: %b[{"index":%d,"text":"' % (self._stem, index)
        return head

    def _envelope(self) -> dict[str, Any]:
        header = self._header
        return {"id": header.id, "object": "text_completion", "created": header.created, "model": header.model}


def _whole_choice(choice: Finished) -> dict[str, Any]:
    return {
        "index": choice.index,
        "text": choice.text,
        "logprobs": None,
        "finish_reason": choice.reason,
        "stop_reason": None,
        "token_ids": None,
        "prompt_logprobs": None,
        "prompt_token_ids": None,
        "routed_experts": None,
    }
