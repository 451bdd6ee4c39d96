"""`/v1/responses`: typed events; the answer's end is an event of its own, and usage comes with it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from prefillwatch.wire.facts import AnswerFacts
from prefillwatch.wire.tolerant import TolerantDecoder

# Ways to end early that the client asked for or must expect, like finish_reason "length" in chat.
_USUAL_LIMITS: Final = frozenset({"max_output_tokens", "max_tokens", "content_filter"})
_TERMINAL: Final = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}


class InputDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: InputDetails | None = None


class Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class Response(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    object: str | None = None
    status: str | None = None
    usage: Usage | None = None
    error: Any = None
    incomplete_details: Incomplete | None = None


class Event(msgspec.Struct, gc=False):
    type: str = ""
    delta: str | None = None
    response: Response | None = None
    error: Any = None
    code: str | int | None = None


_events: TolerantDecoder[Event] = TolerantDecoder(Event)
_responses: TolerantDecoder[Response] = TolerantDecoder(Response)


def read_event(name: bytes, payload: bytes, facts: AnswerFacts) -> None:
    """One event of a stream. Raises UnreadableError when the payload is no JSON."""
    event = _events.decode(payload)
    kind = event.type or name.decode("utf-8", "replace")
    if event.delta and kind.endswith(".delta"):
        facts.add_tokens(0, len(event.delta))
        facts.note_progress(0, None)
        return
    if event.response is not None:
        _read_response(event.response, facts)
    if kind in _TERMINAL:
        facts.finished = True
        response = event.response or Response()
        _read_status(_TERMINAL[kind], response.error or event.error, response.incomplete_details, facts)
    elif kind == "error" or (event.error and not event.type):
        facts.fail(event.error or event.code)


def read_answer(payload: bytes, facts: AnswerFacts) -> None:
    """A whole answer that was not streamed. Raises UnreadableError when it is no JSON."""
    response = _responses.decode(payload)
    _read_response(response, facts)
    _read_status(response.status or "completed", response.error, response.incomplete_details, facts)
    if response.object == "error":
        facts.fail(response.error)
    facts.finished = True


def _read_response(response: Response, facts: AnswerFacts) -> None:
    facts.identify(response.id, response.model)
    usage = response.usage
    if usage is not None:
        cached = usage.input_tokens_details.cached_tokens if usage.input_tokens_details is not None else None
        facts.add_usage(usage.input_tokens, usage.output_tokens, cached)


def _read_status(status: str, error: Any, incomplete: Incomplete | None, facts: AnswerFacts) -> None:
    if status == "incomplete":
        reason = (incomplete.reason if incomplete is not None else None) or "incomplete"
        facts.end_choice(0, reason)
        if reason not in _USUAL_LIMITS:
            facts.fail(error or "incomplete")
        return
    facts.end_choice(0, status)
    if error or status in ("failed", "cancelled"):
        facts.fail(error or status)
