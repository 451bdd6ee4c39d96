"""What servers stream on paths of their own: llama.cpp's `/completion`, SGLang's and TGI's `/generate`, vLLM's
`/inference/v1/generate`, Ollama's `/api/chat` and `/api/generate`.

They share no member with another meaning, so one reader knows them all: whatever of these an event says is taken.
"""

from __future__ import annotations

from typing import Any

import msgspec

from prefillwatch.wire.chat import Timings, Usage
from prefillwatch.wire.facts import AnswerFacts, choice_index
from prefillwatch.wire.tolerant import TolerantDecoder


class Meta(msgspec.Struct, gc=False):
    """SGLang's."""

    id: str | None = None
    finish_reason: Any = None  # a word, or an object with a type
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


class Token(msgspec.Struct, gc=False):
    """TGI's."""

    text: str | None = None


class Details(msgspec.Struct, gc=False):
    """TGI's, with the last token, or with a whole answer."""

    finish_reason: str | None = None
    generated_tokens: int | None = None
    input_length: int | None = None


class Choice(msgspec.Struct, gc=False):
    """vLLM's, where tokens go in and come out."""

    index: int | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None


class Message(msgspec.Struct, gc=False):
    """Ollama's."""

    content: str | None = None
    thinking: str | None = None


class Native(msgspec.Struct, gc=False):
    index: int | None = None
    model: str | None = None
    error: Any = None
    # llama.cpp
    content: str | None = None
    stop: bool | None = None
    stop_type: str | None = None
    tokens_predicted: int | None = None
    tokens_evaluated: int | None = None
    timings: Timings | None = None
    # SGLang
    text: str | None = None  # all of it so far, or what is new
    meta_info: Meta | None = None
    # TGI
    token: Token | None = None
    generated_text: str | None = None
    details: Details | None = None
    # vLLM
    request_id: str | None = None
    choices: list[Choice] | None = None
    usage: Usage | None = None
    # Ollama
    message: Message | None = None
    response: str | None = None
    thinking: str | None = None
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None


_events: TolerantDecoder[Native] = TolerantDecoder(Native)
_answers: TolerantDecoder[Native | list[Native]] = TolerantDecoder(Native | list[Native], Native)


def read_event(name: bytes, payload: bytes, facts: AnswerFacts) -> None:
    """One event of a stream. Raises UnreadableError when the payload is no JSON."""
    event = _events.decode(payload)
    choice = choice_index(event.index)
    if event.token is not None:  # here the index counts tokens
        facts.add_tokens(0, len(event.token.text or "") or 1)
    elif event.meta_info is not None:
        _add_counted(choice, event.meta_info.completion_tokens, facts)
    else:
        text = event.content or event.response or event.thinking or ""
        if event.message is not None:
            text = event.message.content or event.message.thinking or ""
        if text:
            facts.add_tokens(choice, len(text))
            facts.note_progress(choice, event.tokens_predicted)
        for each in event.choices or ():
            if each.token_ids:
                facts.add_counted(choice_index(each.index), len(each.token_ids))
            facts.end_choice(choice_index(each.index), each.finish_reason)
    _read_end(event, facts)
    if name == b"error" or event.error:
        facts.fail(event.error)


def read_answer(payload: bytes, facts: AnswerFacts) -> None:
    """A whole answer that was not streamed; a list of them for several prompts. Raises UnreadableError when it is no
    JSON."""
    answer = _answers.decode(payload)
    for each in answer if isinstance(answer, list) else [answer]:
        for choice in each.choices or ():
            facts.end_choice(choice_index(choice.index), choice.finish_reason)
        _read_end(each, facts)
        if each.error:
            facts.fail(each.error)
    facts.finished = True


def _add_counted(choice: int, completion: int | None, facts: AnswerFacts) -> None:
    """SGLang repeats the text from its beginning: what is new shows in the count alone."""
    if completion is None or completion > facts.reported(choice):
        facts.add_tokens(choice, 1)
        facts.note_progress(choice, completion)


def _read_end(event: Native, facts: AnswerFacts) -> None:
    """Sizes, and what says that it is over."""
    choice = choice_index(event.index)
    facts.identify(event.request_id, event.model)
    if event.timings is not None:
        event.timings.add_to(facts)
    facts.add_usage(event.tokens_evaluated, event.tokens_predicted, None, choice)
    if event.stop:
        facts.end_choice(choice, event.stop_type or "stop")
    if event.meta_info is not None:
        meta = event.meta_info
        facts.identify(meta.id, None)
        facts.add_usage(meta.prompt_tokens, meta.completion_tokens, meta.cached_tokens, choice)
        if meta.finish_reason:
            facts.end_choice(choice, "stop")
    if event.details is not None:
        facts.add_usage(event.details.input_length, event.details.generated_tokens, None)
        facts.end_choice(0, event.details.finish_reason)
    elif event.generated_text is not None:
        facts.end_choice(0, "stop")
    if event.usage is not None:
        facts.add_usage(event.usage.prompt_tokens, event.usage.completion_tokens, event.usage.cached)
    if event.done:
        facts.add_usage(event.prompt_eval_count, event.eval_count, None)
        facts.end_choice(0, event.done_reason or "stop")
        facts.finished = True
