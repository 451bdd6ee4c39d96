"""One attack: a row of the table, and how it is judged.

An attack has a size ``n`` and is done at ``n`` and at ``4 n``. What may grow with it is what the attacker sends; so CPU
time is judged per byte on the wire, and what costs more per byte at ``4 n`` than at ``n`` is above linear. Budgets are
for the core that `meter.REFERENCE_S` describes; a slower one gets as much more.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.hostile import meter
from tests.hostile.place import Place, Window
from tests.hostile.stranger import Reply, Stranger

MIB = 2**20
#: Longest that another stream's token may be held up by an attack, beyond what holds it up without one.
HELD_UP_S = 0.05
#: What CPU time may come on top of the budget, whatever is sent: what wakes a process now and then.
_CPU_FLOOR_S = 0.03
#: How much more a byte may cost at 4 n before its cost counts as above linear.
_LINEAR = 2.0
ROUNDS = 3
_LONGEST_QUIET_S = 3.0


@dataclass(frozen=True)
class Attack:
    """``cpu``: microseconds per byte on the wire; ``memory``: bytes at the peak beyond what there was; each by process;
    ``once``: seconds of CPU whatever is sent, for what is small on the wire and has a bound of its own inside.
    ``back``: the statuses that may come back, 0 for closed without one. ``retry_after``: refusals say when to come
    again. ``rate``: bits per second of the attacker's link; 0: no limit."""

    name: str
    act: Callable[[Stranger, int], list[Reply]]
    n: int
    back: frozenset[int] | set[int]
    at: str = "data"
    cpu: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    once: Mapping[str, float] = field(default_factory=dict)
    held_up_s: float = HELD_UP_S
    retry_after: bool = False
    rate: float = 0.0

    def cpu_budget(self, role: str) -> float:
        return self.cpu.get(role, CPU[role])

    def memory_budget(self, role: str) -> int:
        return self.memory.get(role, MEMORY[role])


#: Budgets where a row states none of its own.
CPU = {"relay": 1.0, "observer": 1.0, "supervisor": 1.0}
MEMORY = {"relay": 4 * MIB, "observer": 8 * MIB, "supervisor": 2 * MIB}


@dataclass
class Round:
    calm_ns: int  # what held up the stream at worst in as many seconds without an attack
    small: Window
    large: Window

    @property
    def held_up_s(self) -> float:
        return (max(self.small.worst_ns, self.large.worst_ns) - self.calm_ns) * 1e-9


@dataclass
class Result:
    attack: Attack
    rounds: list[Round] = field(default_factory=list)
    slowness: float = 1.0

    @property
    def sent(self) -> int:
        return self.rounds[-1].large.sent

    @property
    def held_up_s(self) -> float:
        """The median: what else the machine does hits a round or two, the attack hits each."""
        return statistics.median(each.held_up_s for each in self.rounds)

    def cpu_s(self, role: str, window: str = "large") -> float:
        """The least: what else the machine does only adds to it."""
        return min(getattr(each, window).costs[role].cpu_ns * 1e-9 for each in self.rounds) / self.slowness

    def cpu_us_per_byte(self, role: str) -> float:
        return max(0.0, self.cpu_s(role)) / self.sent * 1e6

    def memory(self, role: str) -> int:
        return min(each.large.costs[role].memory for each in self.rounds)

    def problems(self) -> list[str]:
        return [*self._answers(), *self._costs()]

    def _answers(self) -> list[str]:
        attack, last = self.attack, self.rounds[-1]
        said = []
        replies = last.small.replies + last.large.replies
        if odd := sorted({reply.status for reply in replies} - set(attack.back)):
            said.append(f"came back: {odd}, not {sorted(attack.back)}")
        if not replies:
            said.append("nothing came back at all")
        if attack.retry_after and not all(r.retry_after for r in replies if r.status == 503):
            said.append("a 503 does not say when to come again")
        for what, how in (last.small.unanswered | last.large.unanswered).items():
            said.append(f"{what}: {how}")
        for each in self.rounds:  # a machine that is busy explains late answers, but no death
            said += [died for window in (each.small, each.large) if (died := window.died)]
        if self.held_up_s > attack.held_up_s:
            said.append(
                f"another stream was held up for {self.held_up_s * 1e3:.0f} ms, not {attack.held_up_s * 1e3:.0f}"
            )
        return said

    def _costs(self) -> list[str]:
        attack, said = self.attack, []
        ratio = self.sent / max(1, self.rounds[-1].small.sent)
        for role in meter.ROLES:
            spent, small = self.cpu_s(role), self.cpu_s(role, "small")
            budget = attack.once.get(role, 0.0) + attack.cpu_budget(role) * self.sent * 1e-6
            if spent > budget + _CPU_FLOOR_S:
                said.append(
                    f"{role}: {self.cpu_us_per_byte(role):.2f} µs of CPU per byte, not {attack.cpu_budget(role)}"
                )
            if min(self._beyond_linear(each, role, ratio) for each in self.rounds) > 0:
                said.append(f"{role}: {small:.3f} s of CPU, and {spent:.3f} s for {ratio:.1f} times the bytes")
            if self.memory(role) > attack.memory_budget(role):
                said.append(
                    f"{role}: {self.memory(role) / MIB:.1f} MiB of memory, not {attack.memory_budget(role) / MIB:.1f}"
                )
        return said

    def _beyond_linear(self, each: Round, role: str, ratio: float) -> float:
        """Seconds of CPU at 4 n beyond what those at n allow."""
        small, large = (window.costs[role].cpu_ns * 1e-9 / self.slowness for window in (each.small, each.large))
        return large - _LINEAR * ratio * (small + _CPU_FLOOR_S / 2)

    def row(self) -> dict[str, Any]:
        return {
            "attack": self.attack.name,
            "sent": self.sent,
            "held_up_ms": round(self.held_up_s * 1e3, 1),
            "cpu_us_per_byte": {role: round(self.cpu_us_per_byte(role), 3) for role in meter.ROLES},
            "memory_bytes": {role: self.memory(role) for role in meter.ROLES},
            "back": sorted({reply.status for reply in self.rounds[-1].large.replies}),
            "problems": self.problems(),
        }


def judge(place: Place, attack: Attack, quiet_s: float = 0.5) -> Result:
    """Once where all is well; else again, up to `ROUNDS` times, since a machine has other work too."""
    result = Result(attack, slowness=meter.slowness())
    while len(result.rounds) < ROUNDS:
        if result.rounds:
            quiet_s = max(quiet_s, min(result.rounds[-1].large.seconds, _LONGEST_QUIET_S))
        place.quiet(quiet_s)
        small = place.under(lambda stranger: attack.act(stranger, attack.n), attack.at, attack.rate)
        large = place.under(lambda stranger: attack.act(stranger, 4 * attack.n), attack.at, attack.rate)
        result.rounds.append(Round(place.calm_ns(small.seconds + large.seconds), small, large))
        if not result.problems():
            break
        result.slowness = max(result.slowness, meter.slowness())
    return result
