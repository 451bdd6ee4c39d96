"""`/v1/responses`: named events, numbered from 0, the whole answer again in the last one."""

from __future__ import annotations

from typing import Any, Final

from prefillwatch.lab.simulator.shapes.base import Finished, Header, Usage, compact, named_event

_PLACE: Final = {"content_index": 0, "output_index": 0}


class ResponsesShape:
    """A request has one choice here. `max_output_tokens` is None where the client set none."""

    def __init__(self, header: Header, max_output_tokens: int | None) -> None:
        self._header = header
        self._max_output_tokens = max_output_tokens
        self._item_id = header.id.replace("resp_", "msg_", 1)
        self._sequence_number = 0
        item_id = compact(self._item_id)
        self._delta_tail = b'","item_id":%b,"logprobs":[],"output_index":0,"sequence_number":' % item_id

    def first(self, index: int, prompt_tokens: int) -> tuple[bytes, ...]:
        del index, prompt_tokens
        response = self._response("in_progress", [], None, None)
        return (
            self._event("response.created", {"response": response}),
            self._event("response.in_progress", {"response": response}),
            self._event("response.output_item.added", {"item": self._item("in_progress", []), "output_index": 0}),
            self._event("response.content_part.added", {**_PLACE, "item_id": self._item_id, "part": _part("", [])}),
        )

    def delta(self, index: int, text: str, finish: str | None, usage: Usage | None) -> bytes:
        del index, finish, usage
        number = self._next_number()
        head = b'event: response.output_text.delta\ndata: {"content_index":0,"delta":"' + text.encode()
        return head + self._delta_tail + b'%d,"type":"response.output_text.delta"}\n\n' % number

    def last(self, choices: list[Finished], usage: Usage) -> tuple[bytes, ...]:
        text = choices[0].text
        place = {**_PLACE, "item_id": self._item_id}
        item = self._item("completed", [_part(text, None)])
        return (
            self._event("response.output_text.done", {**place, "logprobs": [], "text": text}),
            self._event("response.content_part.done", {**place, "part": _part(text, None)}),
            self._event("response.output_item.done", {"item": item, "output_index": 0}),
            self._event("response.completed", {"response": self._complete(choices[0], usage)}),
        )

    def whole(self, choices: list[Finished], usage: Usage) -> bytes:
        return compact(self._complete(choices[0], usage))

    def _complete(self, choice: Finished, usage: Usage) -> dict[str, Any]:
        status = "incomplete" if choice.reason == "length" else "completed"
        return self._response(status, [self._item("completed", [_part(choice.text, None)])], choice.reason, usage)

    def _response(self, status: str, output: list[Any], reason: str | None, usage: Usage | None) -> dict[str, Any]:
        return {
            "id": self._header.id,
            "created_at": self._header.created,
            "incomplete_details": {"reason": "max_output_tokens"} if reason == "length" else None,
            "instructions": None,
            "metadata": None,
            "model": self._header.model,
            "object": "response",
            "output": output,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "none",
            "tools": [],
            "top_p": 1.0,
            "background": False,
            "max_output_tokens": self._max_output_tokens,
            "previous_response_id": None,
            "status": status,
            "truncation": "disabled",
            "usage": _usage(usage) if usage is not None else None,
            "user": None,
        }

    def _item(self, status: str, content: list[Any]) -> dict[str, Any]:
        message = {"id": self._item_id, "content": content, "role": "assistant", "status": status}
        return message | {"type": "message", "phase": None}

    def _event(self, name: str, fields: dict[str, Any]) -> bytes:
        return named_event(name, {**fields, "sequence_number": self._next_number(), "type": name})

    def _next_number(self) -> int:
        number = self._sequence_number
        self._sequence_number += 1
        return number


def _part(text: str, logprobs: list[Any] | None) -> dict[str, Any]:
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": logprobs}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached or 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0, "tool_output_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    }
