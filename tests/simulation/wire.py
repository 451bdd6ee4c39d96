"""What an OpenAI-compatible server is sent and what it writes, as text made here."""

from __future__ import annotations

import json
import random
from typing import Any, Final

from tests.simulation.engine import Job

WORDS = (" a", " the", " of", " model", " answers", " quickly", ",", " prefill", " I", " sentence", " it", " waited")
_QUOTED: Final = {word: json.dumps(word).encode() for word in WORDS}
DONE = b"data: [DONE]\n\n"
RESPONSE: Final = "resp_a1"
#: Endpoints that no answer is written for.
ONLY_READ: Final = ("score", "embeddings", "rerank")

_CHAT_START: Final = b'data: {"id":"chatcmpl-7","object":"chat.completion.chunk","created":1,"model":"m","choices":['
_TEXT_START: Final = b'data: {"id":"cmpl-7","object":"text_completion","created":1,"model":"m","choices":['


def words(count: int, rng: random.Random) -> str:
    if count == 1:
        return WORDS[int(rng.random() * len(WORDS))]
    return "".join(rng.choices(WORDS, k=count))


# --- What is asked ---


def path_of(job: Job) -> str:
    return "/v1/" + ("chat/completions" if job.endpoint == "chat" else job.endpoint)


def body_of(job: Job, per_token: float, rng: random.Random) -> dict[str, Any]:
    """Every second list of prompts comes as token ids."""
    text = prompt_text(job.name, job.prompt, job.shared, per_token)
    asked = {"max_tokens": job.answer} | ({"n": job.choices} if job.choices > 1 else {})
    if job.endpoint == "completions":
        ids = rng.random() < 0.5
        prompts = [[7 + at] * job.prompt if ids else f"{at} {text}" for at in range(job.prompts)]
        return {"prompt": prompts, "stream": job.streams} | asked
    if job.endpoint == "responses":
        return {"input": text, "stream": job.streams, "background": True, "max_output_tokens": job.answer}
    if job.endpoint == "score":
        return {"text_1": text[:200], "text_2": _pieces(text[200:], 8)}
    if job.endpoint == "rerank":
        return {"query": text[:200], "documents": _pieces(text[200:], 8)}
    if job.endpoint == "embeddings":
        return {"input": _pieces(text, 4)}
    content: Any = text
    if job.encoded:
        content = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": "http://pictures/1.png"}}]
    body = {"messages": [{"role": "user", "content": content}], "stream": job.streams} | asked
    if job.grammar:
        body["response_format"] = {"type": "json_object"}
    if job.salt:
        body["cache_salt"] = job.salt
    if job.interval > 1:
        body["stream_interval"] = job.interval
    if job.hidden:
        body["include_reasoning"] = False
    return body


def prompt_text(name: str, tokens: int, shared: int, per_token: float) -> str:
    """So many tokens' worth of text; the shared part is the same for all who have it."""
    start = ("You are a helpful assistant. " * 400)[: round(shared * per_token)]
    own = round((tokens - shared) * per_token)
    return start + (f"{name} " * (own // (len(name) + 1) + 1))[:own]


def _pieces(text: str, count: int) -> list[str]:
    size = len(text) // count + 1
    return [text[at : at + size] for at in range(0, max(len(text), 1), size)]


# --- What is answered ---


def event(job: Job, text: str, choice: int, finished: bool = False) -> bytes:
    ended = b'"length"' if finished else b"null"
    said = _QUOTED.get(text) or json.dumps(text).encode()
    if job.endpoint == "completions":
        part = b'{"index":%d,"text":%s,"logprobs":null,"finish_reason":%s}]}\n\n' % (choice, said, ended)
        return _TEXT_START + part
    if job.endpoint == "responses":
        return _typed("response.output_text.delta", {"delta": text, "item_id": "msg_1", "output_index": 0})
    part = b'{"index":%d,"delta":{"content":%s},"logprobs":null,"finish_reason":%s}]}\n\n' % (choice, said, ended)
    return _CHAT_START + part


def opener(job: Job, choice: int) -> bytes:
    """What comes before the first token: the role, without a word."""
    if job.endpoint == "responses":
        return _typed("response.created", {"response": {"id": RESPONSE, "model": "m", "status": "in_progress"}})
    if job.endpoint == "completions":
        return b""
    return event(job, "", choice).replace(b'{"content":""}', b'{"role":"assistant","content":""}')


def counted(job: Job, answer: int) -> bytes:
    """An event of thought that is not shown: what it cost so far."""
    return _CHAT_START + b'{"index":0,"delta":{},"finish_reason":null}],"usage":%s}\n\n' % _usage(job, answer)


def ends(job: Job) -> bytes:
    if job.endpoint == "responses":
        told = {"input_tokens": job.prompt, "output_tokens": job.answer, "total_tokens": job.prompt + job.answer}
        return _typed(
            "response.completed", {"response": {"id": RESPONSE, "model": "m", "status": "completed", "usage": told}}
        )
    start = _TEXT_START if job.endpoint == "completions" else _CHAT_START
    return start + b'],"usage":%s}\n\n' % _usage(job, job.generated) + DONE


def whole(job: Job, rng: random.Random) -> bytes:
    """An answer that is not streamed."""
    told = json.loads(_usage(job, 0 if job.endpoint in ONLY_READ else job.generated))
    if job.endpoint in ONLY_READ:
        return json.dumps({"id": "x-7", "model": "m", "data": [], "usage": told}).encode()
    text = words(job.answer, rng)
    if job.endpoint == "completions":
        choices = [{"index": at, "text": text, "finish_reason": "length"} for at in range(job.answers)]
    else:
        message = {"role": "assistant", "content": text}
        choices = [{"index": at, "message": message, "finish_reason": "length"} for at in range(job.answers)]
    return json.dumps({"id": "chatcmpl-7", "model": "m", "choices": choices, "usage": told}).encode()


def queued(status: str) -> bytes:
    """What is said of an answer in the background."""
    return json.dumps({"id": RESPONSE, "object": "response", "model": "m", "status": status, "output": []}).encode()


def _typed(name: str, event: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: ".encode() + json.dumps({"type": name} | event).encode() + b"\n\n"


def _usage(job: Job, answer: int) -> bytes:
    prompt = job.prompt * job.prompts
    told = {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
    return json.dumps(told).encode()
