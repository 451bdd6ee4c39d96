"""The judge: what all clients saw, what was done to the processes meanwhile, and what of it must not have been."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.soak.plans import BROKEN, Leave, Toxic
from tests.soak.seen import End, Seen, faults

#: Faults that are told in full; further ones are counted.
_TOLD = 20
#: Clients start and end while a fault begins and ends; so much is allowed for what was on its way.
_EDGE_S = 0.3
#: Requests that were just beginning or ending when their relay ended may be counted on one side alone.
_LOST_SLACK, _LOST_SHARE = 5, 0.05


@dataclass
class Records:
    """Everything is kept until it is judged, since what excuses a broken answer may be known only later."""

    seen: list[Seen] = field(default_factory=list)
    excuses: list[tuple[float, float]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    tokens: int = 0

    def add(self, seen: Seen) -> None:
        self.seen.append(seen)

    def excuse(self, began_s: float, ended_s: float) -> None:
        """A process that answers need was away: what was open then may be broken."""
        self.excuses.append((began_s - _EDGE_S, ended_s + _EDGE_S))

    def blame(self, what: str) -> None:
        self.wrong.append(what)

    def expect(self, condition: bool, what: str) -> None:
        if not condition:
            self.blame(what)

    def is_excused(self, seen: Seen) -> bool:
        return any(seen.started_s < ended and seen.ended_s > began for began, ended in self.excuses)

    def lost_since(self, began_s: float, told: float) -> list[str]:
        """Whether as many streams were told to be lost with a relay as broke for clients since ``began_s``."""
        broken = sum(
            seen.end is End.BROKEN and seen.ended_s >= began_s and seen.plan.answer.toxic not in BROKEN
            for seen in self.seen
        )
        if abs(told - broken) <= _LOST_SLACK + broken * _LOST_SHARE:
            return []
        return [f"{told:.0f} streams are told to be lost with a relay, {broken} broke"]

    def judge(self) -> list[Seen]:
        """Compare all that came since the last call with what was meant, and forget it; gives what it was."""
        judged, self.seen = self.seen, []
        for seen in judged:
            self.ends[seen.end.value] += 1
            self.tokens += len(seen.tokens)
            for what in faults(seen, excused=self.is_excused(seen)):
                self.blame(f"request {seen.plan.number} ({_in_words(seen)}): {what}")
        return judged

    def told(self) -> list[str]:
        more = len(self.wrong) - _TOLD
        return self.wrong[:_TOLD] + ([f"… and {more} more"] if more > 0 else [])


def _in_words(seen: Seen) -> str:
    plan = seen.plan
    words = [f"{plan.answer.tokens} tokens", f"body of {plan.body_bytes} bytes"]
    words += [plan.answer.toxic.value] if plan.answer.toxic is not Toxic.NONE else []
    words += [f"leaves {plan.leave.value}"] if plan.leave is not Leave.NEVER else []
    words += ["slow reader"] if plan.slow else []
    return ", ".join(words)


@dataclass(frozen=True)
class Counted:
    """What the clients counted of one stretch without faults, to be held against the books."""

    outcomes: dict[str, int]
    least_tokens: int
    most_tokens: int

    def against(self, outcomes: dict[str, float], tokens: float) -> list[str]:
        """Where the books differ."""
        wrong = [
            f"the books have {outcomes.get(name, 0):.0f} requests as {name}, the clients {self.outcomes.get(name, 0)}"
            for name in sorted({*self.outcomes, *outcomes})
            if outcomes.get(name, 0) != self.outcomes.get(name, 0)
        ]
        if not self.least_tokens <= tokens <= self.most_tokens:
            wrong.append(f"the books have {tokens:.0f} tokens, the clients {self.least_tokens} to {self.most_tokens}")
        return wrong


def counted(seen: Iterable[Seen]) -> Counted:
    """Outcomes as the contract names them, and bounds of the tokens: of an answer that was broken off, some may have
    been on their way when the client left."""
    outcomes: Counter[str] = Counter()
    least = most = 0
    for one in seen:
        if one.plan.leave is Leave.IN_HEAD:
            continue  # never was a request: its head was not complete
        outcomes[_outcome(one)] += 1
        least += len(one.tokens)
        most += len(one.tokens) if one.end is End.CLEAN else one.plan.answer.tokens
    return Counted(dict(outcomes), least, most)


def _outcome(seen: Seen) -> str:
    if seen.end is End.LEFT:
        return "client_closed"
    if seen.plan.answer.toxic in BROKEN:
        return "upstream_truncated"
    return "ok" if seen.end is End.CLEAN else seen.end.value


#: Rises that are no growth: of the memory of one process, and of the descriptors of all processes of a role.
_RSS_SLACK_BYTES, _DESCRIPTOR_SLACK, _SHARE = 16 * 2**20, 64, 0.1


def growth(samples: list[dict[str, list[Any]]]) -> list[str]:
    """What rises: medians of the last third against those of the third before.

    Memory is compared of processes that lived through all of it. Descriptors are those of all processes of a role
    together, since clients of a relay that ends go to the others.
    """
    third = len(samples) // 3
    if not third:
        return []
    wrong = []
    earlier, later = samples[third : 2 * third], samples[-third:]
    for role in samples[-1]:
        old, new = (
            _median([sum(one.descriptors for one in each.get(role, [])) for each in side]) for side in (earlier, later)
        )
        if new > old * (1 + _SHARE) + _DESCRIPTOR_SLACK:
            wrong.append(f"descriptors of {role} rose from {old} to {new}")
        for pid in {one.pid for one in samples[-1][role]}:
            before, after = _memory(earlier, role, pid), _memory(later, role, pid)
            if len(before) < third or len(after) < third:
                continue
            old, new = _median(before), _median(after)
            if new > old * (1 + _SHARE) + _RSS_SLACK_BYTES:
                wrong.append(f"memory of {role} {pid} rose from {old} to {new} bytes")
    return wrong


def _memory(samples: list[dict[str, list[Any]]], role: str, pid: int) -> list[int]:
    return [one.rss_bytes for sample in samples for one in sample.get(role, []) if one.pid == pid]


def _median(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]
