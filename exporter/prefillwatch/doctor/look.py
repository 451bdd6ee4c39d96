"""Everything read from a server in one watch, and how a sidecar's JSON is read. What cannot be read is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from prefillwatch.doctor.figures import Advice, Culprit, Incident, Moment
from prefillwatch.doctor.page import Page
from prefillwatch.wire.printable import printable


@dataclass(frozen=True, slots=True)
class Look:
    """``first`` is None when totals since the server's start are wanted. ``seconds`` lie between first and last."""

    last: Page
    first: Page | None = None
    seconds: float = 0.0
    moments: tuple[Moment, ...] = ()
    incidents: tuple[Incident, ...] = ()
    advice: tuple[Advice, ...] = ()
    lost: str = ""  # why it could not be read to the end


class _Advice(msgspec.Struct):
    words: str = ""
    advised_max_batched_tokens: int | None = None
    chunked: bool | None = None


class _State(msgspec.Struct):
    time: float = 0.0
    advice: dict[str, _Advice] = msgspec.field(default_factory=dict)


class _Culprit(msgspec.Struct):
    prompt_tokens: int = 0
    share: float = 1.0
    request_id: str = ""
    prompt_tokens_source: str = "usage"


class _Incident(msgspec.Struct):
    kind: str
    cause: str
    started_at: float
    duration_seconds: float
    victims: int = 0
    worst_gap_seconds: float = 0.0
    baseline_gap_seconds: float | None = None
    culprits: list[_Culprit] = msgspec.field(default_factory=list)
    ongoing: bool = False


def read_advice(state: bytes) -> tuple[Advice, ...]:
    """From `/api/state`."""
    try:
        decoded = msgspec.json.decode(state, type=_State)
    except msgspec.DecodeError:
        return ()
    return tuple(
        Advice(printable(model), each.words, each.advised_max_batched_tokens, each.chunked)
        for model, each in decoded.advice.items()
    )


def read_time(state: bytes) -> float | None:
    """The sidecar's own clock in `/api/state`, in Unix seconds."""
    try:
        return msgspec.json.decode(state, type=_State).time or None
    except msgspec.DecodeError:
        return None


def read_incidents(document: bytes, since: float | None) -> tuple[Incident, ...]:
    """From `/api/incidents`, those that were not over by ``since``, in Unix seconds; None: all of them."""
    try:
        decoded: Sequence[_Incident] = msgspec.json.decode(document, type=list[_Incident])
    except msgspec.DecodeError:
        return ()
    return tuple(
        Incident(
            kind=each.kind,
            cause=each.cause,
            victims=each.victims,
            worst_gap=each.worst_gap_seconds,
            baseline_gap=each.baseline_gap_seconds,
            culprits=tuple(
                Culprit(
                    culprit.prompt_tokens,
                    culprit.share,
                    printable(culprit.request_id),
                    culprit.prompt_tokens_source != "usage",
                )
                for culprit in each.culprits
            ),
            whole=not each.ongoing and (since is None or each.started_at >= since),
        )
        for each in decoded
        if each.ongoing or since is None or each.started_at + each.duration_seconds > since
    )
