"""Incidents: delays that belong together become one thing to look at.

Delays of one kind and cause that follow each other closely are one incident, however many streams and gaps it takes. A
delay is in it from the moment it is noticed, with a provisional cause; when the cause changes it moves on, and an
incident that lost all its delays was none. The figures of an incident are those of its final delays and, while it
lasts, of the provisional ones as well.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from prefillwatch.analysis.delays import FREEZE, Delay, Evidence, Share
from prefillwatch.analysis.request import Request

#: Delays of one cause less than this apart are one incident.
CHAIN_NS: Final = 1_000_000_000
_MOST_NAMED: Final = 256
#: An incident may last for hours; its victims are counted up to here.
_MOST_VICTIMS: Final = 65_536


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

    def stretch(self, delay: Delay) -> None:
        self.started_ns = min(self.started_ns, delay.started_ns)
        self.ended_ns = max(self.ended_ns, delay.ended_ns)

    def takes(self, delay: Delay, now_ns: int) -> bool:
        """Whether the delay is a link of this chain."""
        if self.kind != delay.kind or self.cause != delay.cause:
            return False
        if (delay.ended_ns or now_ns) < self.started_ns - CHAIN_NS:
            return False
        # Whether one of thousands still lasts is asked only where it matters.
        near = max(self.ended_ns, self.started_ns) + CHAIN_NS
        return delay.started_ns <= near or delay.started_ns <= self.until_ns(now_ns) + CHAIN_NS


class IncidentBook:
    """The incidents that are not closed yet."""

    def __init__(self) -> None:
        self.open: list[Incident] = []
        self._count = 0

    def hold(self, delay: Delay, now_ns: int) -> None:
        """A provisional delay, seen for the first time or judged anew."""
        self._place(delay, now_ns)

    def settle(self, delay: Delay, now_ns: int) -> None:
        """The verdict is final."""
        incident = self._place(delay, now_ns)
        incident.live.pop(delay, None)
        incident.final.add(delay, now_ns)

    def drop(self, delay: Delay) -> None:
        """It was no delay after all."""
        incident, delay.incident = delay.incident, None
        if incident is not None:
            incident.live.pop(delay, None)
            self._forget_if_empty(incident)

    def close(self, now_ns: int) -> list[Incident]:
        """Those that nothing can be added to any more, in the order in which they began."""
        over = [each for each in self.open if self._is_over(each, now_ns)]
        for incident in over:
            self.open.remove(incident)
        return sorted(over, key=lambda each: each.started_ns)

    def _is_over(self, incident: Incident, now_ns: int) -> bool:
        if incident.live or now_ns <= incident.ended_ns + CHAIN_NS:
            return False
        # One that is provisional elsewhere may yet turn out to belong here.
        return not any(
            delay.kind == incident.kind
            and delay.started_ns <= incident.ended_ns + CHAIN_NS
            and (not delay.ended_ns or delay.ended_ns >= incident.started_ns - CHAIN_NS)
            for other in self.open
            for delay in other.live
        )

    def _place(self, delay: Delay, now_ns: int) -> Incident:
        old = delay.incident
        if old is not None and old.cause == delay.cause:
            old.stretch(delay)
            return old
        incident = next((each for each in reversed(self.open) if each.takes(delay, now_ns)), None)
        if incident is None:
            incident = self._begin(delay)
        if old is not None:
            old.live.pop(delay, None)
            self._hand_over(old, incident)
        incident.live[delay] = None
        incident.stretch(delay)
        delay.incident = incident
        return incident

    def _begin(self, delay: Delay) -> Incident:
        self._count += 1
        ended_ns = delay.ended_ns or delay.started_ns
        incident = Incident(self._count, delay.kind, delay.cause, delay.started_ns, ended_ns)
        self.open.append(incident)
        return incident

    def _hand_over(self, old: Incident, new: Incident) -> None:
        """The first verdict on an incident was wrong as a whole: it stays the same incident for whoever watches it."""
        if self._forget_if_empty(old):
            new.number = min(new.number, old.number)

    def _forget_if_empty(self, incident: Incident) -> bool:
        empty = not incident.live and not incident.final.delays
        if empty and incident in self.open:
            self.open.remove(incident)
        return empty
