"""What an OpenAI-compatible server writes, as text made here."""

from __future__ import annotations

import json
import random

WORDS = (" a", " the", " of", " model", " answers", " quickly", ",", " prefill", " I", " sentence", " it", " waited")
DONE = b"data: [DONE]\n\n"


def words(count: int, rng: random.Random) -> str:
    return "".join(rng.choice(WORDS) for _ in range(count))


def event(text: str, choice: int, finished: bool = False) -> bytes:
    reason = "length" if finished else None
    part = {"index": choice, "delta": {"content": text}, "logprobs": None, "finish_reason": reason}
    chunk = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [part]}
    return b"data: " + json.dumps(chunk, separators=(",", ":")).encode() + b"\n\n"


def opener(choice: int) -> bytes:
    """What comes before the first token: the role, without a word."""
    return event("", choice).replace(b'{"content":""}', b'{"role":"assistant","content":""}')


def usage(prompt: int, answer: int) -> bytes:
    told = {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
    chunk = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
    return b"data: " + json.dumps(chunk | {"usage": told}).encode() + b"\n\n"


def answer(text: str, prompt: int, tokens: int) -> bytes:
    message = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "length"}
    told = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
    return json.dumps({"id": "chatcmpl-7", "model": "m", "choices": [message], "usage": told}).encode()


def prompt_text(name: str, tokens: int, shared: int, per_token: float) -> str:
    """So many tokens' worth of text; the shared part is the same for all who have it."""
    start = ("You are a helpful assistant. " * 400)[: round(shared * per_token)]
    own = round((tokens - shared) * per_token)
    return start + (f"{name} " * (own // (len(name) + 1) + 1))[:own]
