"""How many tokens the engine puts into a step, read off the first tokens.

A scheduler with a smaller budget finishes prompts in later steps. So every busy time is scheduled anew under one
supposed budget after another, with and without chunked prefill, and the budget is the one under which the first
tokens come in the steps in which they came. That needs no cost: attention makes late chunks of a long prompt so dear
that the longest steps alone would suggest twice the budget.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prefillwatch.analysis.cost import Busy, StepCost, fit
from prefillwatch.analysis.packing import Beat, Engine, Prompt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RUNS = 64
"""Busy times kept."""

STEPS = 256
"""Single steps kept, once it is certain what rode in them."""

FEWEST_TOKENS = 64
"""A busy time with fewer prompt tokens says more about the noise than about the engine."""

MOST_STEPS = 1000
"""A longer busy time is not scheduled anew."""

FORGET = 0.95
"""Weight of a busy time against the one after it: the engine may be started anew with another budget."""

FAR_OFF = 3
"""Steps beyond which being wrong does not count for more."""

GOOD_FIT = 0.15
"""Steps that first tokens may be off on average before budgets between the powers of two are tried."""

FINER = 16
"""Number of budgets tried between one power of two and the next."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How the engine may fill its steps."""

    budget: int
    chunked: bool = True


POWERS = tuple(1 << exponent for exponent in range(7, 18))
COARSE = tuple(Policy(budget, chunked) for chunked in (True, False) for budget in POWERS)


@dataclass(slots=True, eq=False)
class Run:
    """A finished busy time: its steps, and its prompts with the step that made the first token of each."""

    beats: list[Beat]
    prompts: list[Prompt]
    last: list[int]
    misses: dict[Policy, float] = field(default_factory=dict)

    def busy(self) -> Busy:
        context = sum(prompt.uncached * (prompt.cached + prompt.uncached / 2) for prompt in self.prompts)
        excess_ns = sum(beat.excess_ns for beat in self.beats)
        return Busy(len(self.beats), sum(prompt.uncached for prompt in self.prompts), context, excess_ns)

    def missed(self, policy: Policy) -> float:
        """Steps by which first tokens would have come earlier or later under a policy."""
        found = self.misses.get(policy)
        if found is None:
            finished = schedule(self.beats, self.prompts, self.last, policy)
            off = (abs(finish - last) for finish, last in zip(finished, self.last, strict=True))
            found = self.misses[policy] = float(sum(min(FAR_OFF, steps) for steps in off))
        return found


def schedule(beats: Sequence[Beat], prompts: Sequence[Prompt], last: Sequence[int], policy: Policy) -> list[int]:
    """The step in which each prompt would finish; beyond the end for those that would not."""
    order = sorted(range(len(prompts)), key=lambda each: (last[each], prompts[each].sent_ns))
    rest = [prompt.uncached for prompt in prompts]
    finished = [len(beats)] * len(prompts)
    for index, beat in enumerate(beats):
        room = policy.budget - beat.decoders
        arrived = (each for each in order if prompts[each].sent_ns <= beat.start_ns)
        for each in list(arrived):
            if room <= 0 or (not policy.chunked and rest[each] > room):
                break
            chunk = min(room, rest[each])
            room -= chunk
            rest[each] -= chunk
            if not rest[each]:
                finished[each] = index
                order.remove(each)
    return finished


class Learner:
    """Learns budget and cost from the last busy times."""

    __slots__ = ("_dirty", "_engine", "_policies", "_refine_at", "_runs", "_steps")

    def __init__(self) -> None:
        self._runs: deque[Run] = deque(maxlen=RUNS)
        self._steps: deque[Busy] = deque(maxlen=STEPS)
        self._engine = Engine()
        self._dirty = False
        self._policies: list[Policy] = list(COARSE)
        self._refine_at = 0

    @property
    def engine(self) -> Engine:
        if self._dirty:
            self._dirty = False
            self._engine = self._learn()
        return self._engine

    def resized(self) -> None:
        """The size of a prompt was corrected."""
        self._dirty = True

    def add(self, beats: Iterable[Beat], released: Sequence[tuple[Prompt, Beat]]) -> None:
        """Take in a finished busy time: its steps, and the prompts with the steps that made their first tokens."""
        makers = {id(beat) for _, beat in released}
        carriers = [beat for beat in beats if beat.long or id(beat) in makers]
        position = {id(beat): index for index, beat in enumerate(carriers)}
        known = [(prompt, position[id(beat)]) for prompt, beat in released if id(beat) in position]
        run = Run(carriers, [prompt for prompt, _ in known], [index for _, index in known])
        if carriers and sum(prompt.uncached for prompt in run.prompts) >= FEWEST_TOKENS:
            self._runs.append(run)
            self._dirty = True

    def add_step(self, beat: Beat) -> None:
        """Take in a final step with its riders."""
        if self._engine.proven and beat.used >= FEWEST_TOKENS:
            self._steps.append(Busy(1, beat.used, beat.token_contexts, beat.excess_ns))

    def _learn(self) -> Engine:
        cost = fit([*(run.busy() for run in self._runs), *self._steps])
        weighted = self._weighted()
        if not weighted:
            return Engine(cost=cost)
        misses = self._misses(weighted, self._policies)
        best = min(self._policies, key=misses.__getitem__)
        if misses[best] > GOOD_FIT * sum(weight * len(run.prompts) for run, weight in weighted):
            best = self._refined(weighted, best, misses[best])
        return self._judged(weighted, best, cost)

    def _weighted(self) -> list[tuple[Run, float]]:
        """Busy times that can tell budgets apart, the latest with the greatest weight."""
        runs = [run for run in self._runs if len(run.beats) <= MOST_STEPS]
        return [(run, FORGET**age) for age, run in enumerate(reversed(runs))]

    def _misses(self, weighted: list[tuple[Run, float]], policies: Iterable[Policy]) -> dict[Policy, float]:
        return {policy: sum(weight * run.missed(policy) for run, weight in weighted) for policy in policies}

    def _judged(self, weighted: list[tuple[Run, float]], best: Policy, cost: StepCost) -> Engine:
        misses = self._misses(weighted, (best, COARSE[len(POWERS) - 1]))
        proven = misses[COARSE[len(POWERS) - 1]] > misses[best]
        return Engine(best.budget, best.chunked, proven, cost)

    def _refined(self, weighted: list[tuple[Run, float]], best: Policy, missed: float) -> Policy:
        """Look between the powers of two around the best; the middle of those that fit equally well."""
        if len(self._runs) < RUNS and len(self._runs) < self._refine_at:
            return best
        self._refine_at = len(self._runs) + max(4, len(self._runs) // 4)
        tries = [Policy(round(best.budget / 2 * 2 ** (step / FINER)), best.chunked) for step in range(2 * FINER + 1)]
        misses = self._misses(weighted, tries)
        least = min(misses.values())
        if least >= missed:
            return best
        good = [policy for policy in tries if misses[policy] == least]
        found = good[len(good) // 2]
        self._policies.append(found)
        return found
