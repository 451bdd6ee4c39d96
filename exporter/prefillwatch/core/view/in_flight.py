"""Requests in flight as of one moment: who streams, who is silent or frozen, whose prompt is read, and what stalls."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

import msgspec

from prefillwatch.analysis.delays import FREEZE, Stall
from prefillwatch.analysis.ledger import Ledger
from prefillwatch.analysis.requests import Request
from prefillwatch.analysis.verdicts import Silence
from prefillwatch.units import NS


class SequenceNow(msgspec.Struct, frozen=True, gc=False):
    """A choice that has begun. Its slot is where its tokens are booked: the next sequence gets it when this is over."""

    choice: int
    slot: int
    #: It said that it is done.
    over: bool
    #: Since its last token; 0 where none is owed, or its own reader holds it up.
    silent_s: float
    #: It stalls: by the one definition there is, which gauges, state and page share.
    frozen: bool
    #: Of its tokens; 0: not seen.
    first_ns: int
    last_ns: int


class RequestNow(msgspec.Struct, frozen=True):
    """One that makes tokens. Times are monotonic nanoseconds, 0: not yet."""

    rid: int
    request_id: str
    model: str
    endpoint: str
    streaming: bool
    received_ns: int
    sent_ns: int
    first_ns: int
    last_ns: int
    prompt_tokens: int
    prompt_exact: bool
    token_events: int
    client_blocked: bool
    #: Sent, and no token yet.
    in_prefill: bool
    #: Its prompt is probably in the step that runs.
    in_service: bool
    decoding: int
    sequences: tuple[SequenceNow, ...]


class ModelLoad(msgspec.Struct, frozen=True):
    """What is in flight of one model. None: there is none of it."""

    model: str
    decoding: int
    prefilling: int
    prefilling_tokens: int
    oldest_wait_s: float | None
    longest_silence_s: float | None
    frozen: int


class StallNow(msgspec.Struct, frozen=True):
    """One that lasts, or ended a moment ago and may yet get another cause. ``ended_ns`` 0: it lasts."""

    #: Sets it apart from others, and is what `View.stall` of a later view takes; nothing else is to be read from it.
    key: Hashable
    rid: int
    slot: int
    started_ns: int
    ended_ns: int
    cause: str


def silences_by_slot(ledger: Ledger, known_ns: int) -> dict[int, Silence]:
    """What is silent of the sequences that owe tokens."""
    found = {}
    for silence in ledger.silences(known_ns):
        request = silence.request
        if not request.over or all(request.slots[choice] != silence.slot for choice in request.over):
            found[silence.slot] = silence
    return found


def load_by_model(
    requests: Iterable[Request], models: Iterable[int], names: Sequence[str], silences: Iterable[Silence], known_ns: int
) -> tuple[ModelLoad, ...]:
    """Those of all models that have books or something in flight."""
    decoding: dict[int, int] = dict.fromkeys(models, 0)
    waiting: dict[int, int] = {}
    tokens: dict[int, int] = {}
    oldest: dict[int, int] = {}
    for request in requests:
        model = request.model
        decoding[model] = decoding.get(model, 0) + request.decoding
        if request.generating and request.in_prefill and not request.runs_unseen:
            waiting[model] = waiting.get(model, 0) + 1
            tokens[model] = tokens.get(model, 0) + request.prompt_tokens
            # A JSON answer shows no first token, so its wait says nothing.
            if request.streaming and request.received_ns:
                oldest[model] = min(request.received_ns, oldest.get(model, known_ns))
    longest: dict[int, float] = {}
    frozen: dict[int, int] = {}
    for silence in silences:
        model = silence.request.model
        longest[model] = max(longest.get(model, 0.0), silence.seconds)
        frozen[model] = frozen.get(model, 0) + silence.frozen
    return tuple(
        ModelLoad(
            names[model],
            streams,
            waiting.get(model, 0),
            tokens.get(model, 0),
            (known_ns - oldest[model]) / NS if model in oldest else None,
            longest.get(model),
            frozen.get(model, 0),
        )
        for model, streams in decoding.items()
    )


def requests_now(
    requests: Sequence[Request],
    ledger: Ledger,
    names: Sequence[str],
    silences: Mapping[int, Silence],
    in_service: Collection[Hashable],
) -> Iterator[RequestNow]:
    spans = ledger.book.spans([slot for each in requests for slot in each.slots.values()])
    for request in requests:
        over = request.over
        sequences = []
        for choice, slot in request.slots.items():
            silence = silences.get(slot)
            silent_s, frozen = (0.0, False) if silence is None else (silence.seconds, silence.frozen)
            sequences.append(SequenceNow(choice, slot, choice in over, silent_s, frozen, *next(spans)))
        yield _request_now(request, names, tuple(sequences), in_service=request.rid in in_service)


def ended_now(request: Request, names: Sequence[str]) -> RequestNow:
    """One that is over: of what its slots were booked nothing is left."""
    span = request.first_ns, request.last_ns
    sequences = [SequenceNow(choice, slot, True, 0.0, False, *span) for choice, slot in request.slots.items()]
    return _request_now(request, names, tuple(sequences))


def _request_now(
    request: Request, names: Sequence[str], sequences: tuple[SequenceNow, ...] = (), *, in_service: bool = False
) -> RequestNow:
    return RequestNow(
        request.rid,
        request.request_id,
        names[request.model],
        request.endpoint,
        request.streaming,
        request.received_ns,
        request.sent_ns,
        request.first_ns,
        request.last_ns,
        request.prompt_tokens,
        request.prompt_exact,
        request.events,
        bool(request.blocked_since_ns),
        request.in_prefill,
        in_service,
        request.decoding,
        sequences,
    )


def stall_now(stall: Stall) -> StallNow:
    return StallNow(stall, stall.request.rid, stall.slot, stall.started_ns, stall.ended_ns, stall.cause)


def stalls_now(ledger: Ledger) -> tuple[StallNow, ...]:
    """By their beginning."""
    stalls = set(ledger.causes.watch.open.values())
    for incident in ledger.causes.incidents.open:
        if incident.kind == FREEZE:
            stalls.update(each for each in incident.live if isinstance(each, Stall))
    return tuple(map(stall_now, sorted(stalls, key=lambda each: each.started_ns)))
