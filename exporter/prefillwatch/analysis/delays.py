"""Lost time: a stall of one stream, or the wait of one request for its first token, with whatever is known of it.

Times are monotonic nanoseconds. A delay is provisional until its verdict is final. Delays of one cause that follow each
other closely make an incident.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from prefillwatch.analysis.cost import KnownCost
from prefillwatch.analysis.requests import NOWHERE, Place, Request
from prefillwatch.analysis.tuning import DEFAULT
from prefillwatch.contract.causes import UNATTRIBUTED

FREEZE: Final = "freeze"
WAIT: Final = "wait"

#: An incident names at most so many culprits, and tenants of victims.
_MOST_NAMED: Final = 256
#: An incident may last for hours; its victims are counted up to here.
_MOST_VICTIMS: Final = 65_536
#: Final delays that an incident keeps for its story; the first.
_MOST_KEPT: Final = 512

#: Plain figures, ready for JSON, that a verdict rests on.
Evidence = dict[str, float | bool | str | None]


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """The part of a delay that one request caused: its uncached prompt tokens in service, and their share of all."""

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
    place: Place | None = None
    held_against: str = ""  # whose gaps the baseline is of
    tokens: float = 1.0  # that ended it, in units of the stream's average token event
    events: int = 1  # token events in that read
    held_back: float = 0.0  # tokens beyond those that the length of their text betrays
    burst_before: int = 0  # token events that ended the stall before this one, or came in its stream's first read
    after: list[ReadAfter] = field(default_factory=list)
    cost: KnownCost = field(default_factory=KnownCost)  # known before it ended, so not learned from it
    common_ns: int = -1  # longest time in it in which no stream got a token; -1 not measured yet
    ticks: int = 0  # engine steps seen inside

    @property
    def engine(self) -> int:
        """The number of its stream's engine among several; negative: not known."""
        return self.place.engine if self.place is not None else NOWHERE


@dataclass(slots=True, eq=False, kw_only=True)
class Wait(Delay):
    """A first token that is late for the size of its prompt."""

    kind: str = WAIT


def shares_of(tokens: dict[Request, int]) -> tuple[Share, ...]:
    """Parts by tokens in service, the largest first."""
    total = sum(tokens.values())
    ordered = sorted(tokens.items(), key=lambda pair: -pair[1])
    return tuple(Share(request, each, each / total) for request, each in ordered) if total else ()


@dataclass(slots=True, eq=False)
class Tally:
    """Sums over delays."""

    delays: int = 0
    excess_ns: float = 0.0
    worst: tuple[int, int, int] = (-1, 0, 0)  # see `_rank`
    baseline_ns: float = 0.0  # of the worst
    evidence: Evidence = field(default_factory=dict)  # of the worst
    decoding: int = 0  # streams that were decoding: at the most at one time, or all that stalled if these are more
    victims: set[int] = field(default_factory=set)
    models: Counter[int] = field(default_factory=Counter)
    blame_ns: dict[Request, float] = field(default_factory=dict)
    suffered_ns: dict[str, float] = field(default_factory=dict)  # by the tenants of victims, where they are told apart

    def add(self, delay: Delay, now_ns: int) -> None:
        self.delays += 1
        self.excess_ns += delay.excess_ns
        self.decoding = max(self.decoding, delay.decoding)
        if len(self.victims) < _MOST_VICTIMS:
            self.victims.add(delay.request.rid)
        if delay.kind == FREEZE:
            self.decoding = max(self.decoding, len(self.victims))
        self.models[delay.model] += 1
        rank = _rank(delay, now_ns)
        if rank > self.worst:
            self.worst = rank
            self.baseline_ns, self.evidence = delay.baseline_ns, delay.evidence
        self._blame(delay.shares, delay.excess_ns)
        tenant = delay.request.tenant
        if tenant and (tenant in self.suffered_ns or len(self.suffered_ns) < _MOST_NAMED):
            self.suffered_ns[tenant] = self.suffered_ns.get(tenant, 0.0) + delay.excess_ns

    @property
    def worst_ns(self) -> int:
        return max(self.worst[0], 0)

    def _blame(self, shares: tuple[Share, ...], excess_ns: float) -> None:
        for share in shares:
            if share.request in self.blame_ns or len(self.blame_ns) < _MOST_NAMED:
                before = self.blame_ns.get(share.request, 0.0)
                self.blame_ns[share.request] = before + share.part * max(excess_ns, 1.0)

    def copy(self) -> Tally:
        return Tally(
            self.delays,
            self.excess_ns,
            self.worst,
            self.baseline_ns,
            self.evidence,
            self.decoding,
            set(self.victims),
            Counter(self.models),
            dict(self.blame_ns),
            dict(self.suffered_ns),
        )


def _rank(delay: Delay, now_ns: int) -> tuple[int, int, int]:
    """The longest is the worst; of those of one length, as streams that froze together are, the one that began first,
    whichever was judged first."""
    return delay.length_ns(now_ns), -delay.started_ns, -delay.request.rid


@dataclass(slots=True, eq=False)
class Incident:
    """``live`` are its provisional delays; ``ended_ns`` is the end of the last one that is over."""

    number: int
    kind: str
    cause: str
    started_ns: int
    ended_ns: int
    final: Tally = field(default_factory=Tally)
    live: dict[Delay, None] = field(default_factory=dict)  # a set that keeps its order
    chain_ns: int = DEFAULT.incidents.chain_ns  # delays of its cause less than this apart belong to it
    kept: list[Delay] = field(default_factory=list)  # final ones, the first

    @property
    def model(self) -> int:
        """The one that most of its delays are of."""
        counts = self.final.models + Counter(delay.model for delay in self.live)
        return counts.most_common(1)[0][0] if counts else 0

    def tally(self, now_ns: int) -> Tally:
        """Figures by now."""
        if not self.live:
            return self.final
        tally = self.final.copy()
        for delay in self.live:
            tally.add(delay, now_ns)
        return tally

    def until_ns(self, now_ns: int) -> int:
        """The end; now while one of its delays lasts."""
        return now_ns if any(not delay.ended_ns for delay in self.live) else self.ended_ns

    def settle(self, delay: Delay, now_ns: int) -> None:
        """A delay of it is final."""
        self.live.pop(delay, None)
        self.final.add(delay, now_ns)
        if len(self.kept) < _MOST_KEPT:
            self.kept.append(delay)

    def stretch(self, delay: Delay) -> None:
        self.started_ns = min(self.started_ns, delay.started_ns)
        self.ended_ns = max(self.ended_ns, delay.ended_ns)

    def takes(self, delay: Delay, now_ns: int) -> bool:
        """Whether the delay is a link of this chain."""
        if self.kind != delay.kind or self.cause != delay.cause:
            return False
        if (delay.ended_ns or now_ns) < self.started_ns - self.chain_ns:
            return False
        # Whether one of thousands still lasts is asked only where it matters.
        near = max(self.ended_ns, self.started_ns) + self.chain_ns
        return delay.started_ns <= near or delay.started_ns <= self.until_ns(now_ns) + self.chain_ns
