"""Lost time: a stall of one stream, or the wait of one request for its first token, with whatever is known of it.

Times are monotonic nanoseconds. A delay is provisional until its verdict is final; it belongs to one incident.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from prefillwatch.analysis.cost import StepCost
from prefillwatch.analysis.request import Request

if TYPE_CHECKING:
    from prefillwatch.analysis.incidents import Incident

FREEZE: Final = "freeze"
WAIT: Final = "wait"

PREFILL: Final = "prefill"
UNATTRIBUTED: Final = "unattributed"

Evidence = dict[str, float | bool | str | None]
"""Plain figures, ready for JSON, that a verdict rests on."""


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """What a request has to do with somebody's delay: its uncached prompt tokens in service, and their part of all."""

    request: Request
    tokens: int
    part: float


@dataclass(slots=True, eq=False, kw_only=True)
class Delay:
    """``baseline_ns`` is what it should have taken, ``excess_ns`` what it took beyond that."""

    kind: str
    request: Request
    model: int
    started_ns: int
    ended_ns: int = 0  # 0: it lasts
    baseline_ns: float = 0.0
    excess_ns: float = 0.0
    cause: str = UNATTRIBUTED
    shares: tuple[Share, ...] = ()
    evidence: Evidence = field(default_factory=dict)
    decoding: int = 0  # streams that were decoding then
    incident: Incident | None = None

    def length_ns(self, now_ns: int) -> int:
        return (self.ended_ns or now_ns) - self.started_ns


class ReadAfter(NamedTuple):
    """A read right after a stall: when, its token events, and the tokens beyond those that its text betrays."""

    time_ns: int
    events: int
    held_back: float = 0.0


@dataclass(slots=True, eq=False, kw_only=True)
class Stall(Delay):
    """A gap between two reads with tokens that is long by the stall rule."""

    kind: str = FREEZE
    slot: int = -1
    tokens: float = 1.0  # that ended it, in units of the stream's usual token event
    events: int = 1  # token events in that read
    held_back: float = 0.0  # tokens beyond those that the length of their text betrays
    burst_before: int = 0  # token events that ended the stall before this one, or came in its stream's first read
    after: list[ReadAfter] = field(default_factory=list)
    cost: StepCost = field(default_factory=StepCost)  # learned before it ended, so not from it
    largest_before: int = 0  # largest prompt seen before it ended
    common_ns: int = -1  # longest time in it in which no stream got a token; -1 not measured yet
    ticks: int = 0  # engine steps seen inside


@dataclass(slots=True, eq=False, kw_only=True)
class Wait(Delay):
    """A first token that does not come in the time that the size of its prompt deserves."""

    kind: str = WAIT


def shares_of(tokens: dict[Request, int]) -> tuple[Share, ...]:
    """Parts by tokens in service, the largest first."""
    total = sum(tokens.values())
    ordered = sorted(tokens.items(), key=lambda pair: -pair[1])
    return tuple(Share(request, each, each / total) for request, each in ordered) if total else ()
