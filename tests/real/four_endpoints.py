"""The same small request for each of the four endpoints, and what their answers have in common."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from tests.real.client import Answer
from tests.real.engine import MODEL_NAME

TEXT = "import os\nfor name in os.listdir('.'): # größer, 好\n"
TOKENS = 24
PATHS = {
    "chat_completions": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
ENDPOINTS = tuple(PATHS)

# What differs between two answers to the same request: ids that vLLM draws, and times.
_VOLATILE = re.compile(
    rb'("(?:created|created_at|completed_at)":)\s*\d+|\b((?:resp|msg|rs)_)[0-9a-f]{8,}|\b((?:chatcmpl|cmpl)-)\w+'
)
NOTHING = re.compile(rb"(?!)")


def request(endpoint: str, *, stream: bool, text: str = TEXT, tokens: int = TOKENS, **more: Any) -> dict[str, Any]:
    """A greedy request of `tokens` tokens; the model never ends by itself before that."""
    body: dict[str, Any] = {"model": MODEL_NAME, "temperature": 0, "ignore_eos": True, "stream": stream}
    messages = [{"role": "user", "content": text}]
    by_endpoint: dict[str, dict[str, Any]] = {
        "chat_completions": {"messages": messages, "max_tokens": tokens},
        "completions": {"prompt": text, "max_tokens": tokens},
        "responses": {"input": text, "max_output_tokens": tokens},
        "messages": {"messages": messages, "max_tokens": tokens},
    }
    return body | by_endpoint[endpoint] | more


def normalised(body: bytes, but: re.Pattern[bytes] = NOTHING) -> bytes:
    """The body with drawn ids and times replaced and what `but` matches left out, everything else byte for byte."""
    return _VOLATILE.sub(lambda found: (found[1] or found[2] or found[3]) + b"#", but.sub(b"", body))


def essence(answer: Answer, but: re.Pattern[bytes] = NOTHING) -> tuple[list[Any], str]:
    """A stream without what varies between two answers to one request: (the sequence of kinds of events, all text).

    vLLM puts the tokens that wait for its API server into one event, so how the text is cut into events is a matter of
    load. Events that differ in their text only are one kind here, and repetitions of a kind are folded.
    """
    kinds: list[Any] = []
    text = ""
    for event in events_of(normalised(answer.body, but)):
        text += take_text(event)
        if not kinds or kinds[-1] != event:
            kinds.append(event)
    return kinds, text


def events_of(body: bytes) -> list[Any]:
    data = (block.partition(b"data: ")[2] for block in body.split(b"\n\n"))
    return [json.loads(each.replace(b":#", b":0")) for each in data if each and each != b"[DONE]"]


def take_text(event: dict[str, Any]) -> str:
    """Remove and return the new text of an event of any of the four formats, and its place in the sequence."""
    event.pop("sequence_number", None)
    if event.get("choices"):
        holder, key = event["choices"][0], "text"
        if "delta" in holder:
            holder, key = holder["delta"], "content"
    elif isinstance(event.get("delta"), dict):
        holder, key = event["delta"], "text"
    else:
        holder, key = event, "delta"
    text = holder.get(key)
    if not isinstance(text, str):
        return ""
    holder[key] = ""
    return text


def usage(answer: Answer, stream: bool) -> tuple[int, int, int]:
    """(prompt, completion, cached) tokens as the answer itself says, the largest that it says anywhere."""
    events: Iterable[Any] = answer.events() if stream else [answer.json()]
    found = [each for event in events for each in usages(event)]
    assert found, "the answer tells no usage"
    return (
        max(each.get("prompt_tokens") or each.get("input_tokens") or 0 for each in found),
        max(each.get("completion_tokens") or each.get("output_tokens") or 0 for each in found),
        max(cached_of(each) for each in found),
    )


def usages(event: Any) -> list[dict[str, Any]]:
    """Usage objects at the places where the four formats have them."""
    holders = (event, event.get("response") or {}, event.get("message") or {})
    return [holder["usage"] for holder in holders if isinstance(holder, dict) and holder.get("usage")]


def cached_of(usage: dict[str, Any]) -> int:
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    return details.get("cached_tokens") or usage.get("cache_read_input_tokens") or 0
