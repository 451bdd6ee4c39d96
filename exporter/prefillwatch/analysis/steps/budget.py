"""How many tokens the engine puts into a step, read off the busy times.

Every busy time is packed anew under one supposed budget after another, with and without chunked prefill. Under the true
one the prompts fit into the steps, and every step took the time that its tokens cost. Under a smaller one prompts
find no room, under a larger one long steps stay empty. The longest steps alone would tell less: attention makes late
chunks of a long prompt so dear that they suggest twice the budget.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from prefillwatch.analysis.cost import Busy, StepCost, fit
from prefillwatch.analysis.steps.packing import TOO_LONG, UNLIMITED, Engine, OpenStep, Prompt, place, place_gone

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RUNS = 64
"""Busy times kept."""

STEPS = 256
"""Single steps kept, once it is certain what rode in them."""

ENOUGH_RUNS = 4
"""So many busy times of which all sizes are known make those without unnecessary."""

NEWS = 8
"""The cost is learned anew when one in so many steps is new."""

FEWEST_TOKENS = 64
"""A busy time with fewer prompt tokens says more about the noise than about the engine."""

MOST_STEPS = 500
"""A longer busy time is not packed anew."""

FORGET = 0.95
"""Weight of a busy time against the one after it: the engine may be started anew with another budget."""

POOR_FIT = 0.15
"""Share of step time in the wrong place from which on budgets between the powers of two, and caps, are tried …"""
MUCH_BETTER = 0.7
"""… and taken when they leave so much less in the wrong place."""

FINER = 16
"""Number of budgets tried between one power of two and the next."""

FEWEST_TOLD = 3
"""Steps that the engine told of teach a cost from so many on: a single one may have been long for any reason."""
ENOUGH_STEPS = 12
"""Steps beyond the first of each busy time that must have been seen before a budget is sought between the powers of
two."""

PROVEN_BY = 0.5
"""Steps that must be in the wrong place under an unlimited budget, or without chunked prefill, to refute either."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How the engine may fill its steps."""

    budget: int
    chunked: bool = True
    cap: int = UNLIMITED
    """Tokens of one prompt per step."""

    def engine(self, cost: StepCost, proven: bool = False) -> Engine:
        return Engine(self.budget, self.cap, self.chunked, proven, cost)


POWERS = tuple(1 << exponent for exponent in range(9, 18))
BOUNDLESS = Policy(POWERS[-1])
COARSE = tuple(Policy(budget, chunked) for chunked in (True, False) for budget in POWERS)


@dataclass(slots=True, eq=False)
class Run:
    """A finished busy time: its steps, and its prompts with the step that made the first token of each, or in which its
    client left."""

    beats: list[OpenStep]
    prompts: list[tuple[Prompt, int]]
    cost: StepCost = field(default_factory=StepCost)
    misfits: dict[Policy, float] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether it is known how many tokens were served: no client left while its prompt may have been read."""
        return all(prompt.gone_ns is None for prompt, _ in self.prompts)

    def busy(self) -> Busy:
        """What it says about the cost. Once its prompts are placed, the steps without any do not count."""
        served = [prompt for prompt, _ in self.prompts if prompt.gone_ns is None]
        context = sum(prompt.uncached * (prompt.cached + prompt.uncached / 2) for prompt in served)
        carriers = [beat for beat in self.beats if beat.riders] or self.beats
        tokens = sum(prompt.uncached for prompt in served)
        return Busy(len(carriers), tokens, context, sum(beat.excess_ns for beat in carriers))

    def misfit(self, policy: Policy) -> float:
        """Steps' worth of time and tokens that are in the wrong place under a policy."""
        found = self.misfits.get(policy)
        if found is None:
            found = self.misfits[policy] = len(self.beats) * self._misplaced(policy.engine(self.cost))
        return found

    def bounded(self, cost: StepCost) -> StepCost:
        """The cost, or as much less as would make all prompts fit into the time there was."""
        expected_ns = sum(cost.expect_ns(prompt.uncached, prompt.cached) for prompt, _ in self.prompts)
        return cost.scaled(min(1.0, sum(beat.excess_ns for beat in self.beats) / max(1.0, expected_ns)))

    @property
    def begin(self) -> int:
        """The first step after those that nobody's decoding showed: they may have been any number of steps."""
        return 1 + max((index for index, beat in enumerate(self.beats) if not beat.observed), default=-1)

    @property
    def tells_budget(self) -> bool:
        seen = any(last >= self.begin and prompt.gone_ns is None for prompt, last in self.prompts)
        return seen and len(self.beats) <= MOST_STEPS

    def _misplaced(self, engine: Engine) -> float:
        beats = [beat.blank() for beat in self.beats[self.begin :]]
        for prompt, last in self.prompts:
            if prompt.gone_ns is not None:
                place_gone(beats, prompt, engine)
            elif last >= self.begin:
                place(beats, last - self.begin, prompt, engine)
        tokens = sum(prompt.uncached for prompt, last in self.prompts if prompt.gone_ns is None and last >= self.begin)
        placed = sum(each for beat in beats for prompt, each in beat.riders if prompt.gone_ns is None)
        plausible_ns = TOO_LONG * engine.cost.expect_ns(sum(prompt.uncached for prompt, _ in self.prompts))
        return misplaced_time(beats, plausible_ns) + (tokens - placed) / tokens


def misplaced_time(beats: Sequence[OpenStep], plausible_ns: float) -> float:
    """Share of the time of all steps that does not agree with what rode in them. What goes beyond a plausible time of a
    step is not the prompts', but a pause."""
    excess = [min(beat.excess_ns, plausible_ns) for beat in beats]
    used_ns = sum(beat.used_ns for beat in beats)
    if not sum(excess) or not used_ns:
        return 0.0
    scale = sum(excess) / used_ns
    off = sum(abs(its_ns - scale * beat.used_ns) for its_ns, beat in zip(excess, beats, strict=True))
    return off / (2 * sum(excess))


class Learner:
    """Learns budget and cost from the last busy times."""

    __slots__ = ("_dirty", "_engine", "_new_steps", "_policies", "_recalled", "_refine_at", "_runs", "_seen", "_steps")

    def __init__(self) -> None:
        self._runs: deque[Run] = deque(maxlen=RUNS)
        self._steps: deque[OpenStep] = deque(maxlen=STEPS)
        self._engine = self._recalled = Engine()
        self._dirty = False
        self._policies: list[Policy] = list(COARSE)
        self._refine_at = 0
        self._seen = 0
        self._new_steps = 0

    @property
    def engine(self) -> Engine:
        if self._dirty:
            self._dirty = False
            self._engine = self._learn()
        return self._engine

    @property
    def engine_of_last_run(self) -> Engine:
        """The same, with no greater cost than the last busy time had time for."""
        return replace(self.engine, cost=self._runs[-1].cost) if self._runs else self.engine

    def recall(self, engine: Engine) -> None:
        """What another learned about this engine counts until enough was seen here."""
        self._engine = self._recalled = engine
        self._dirty = True

    @property
    def _relies_on_others(self) -> bool:
        return self._recalled.cost.known and len(self._runs) < ENOUGH_RUNS

    def resized(self) -> None:
        """The size of a prompt was corrected."""
        self._dirty = True

    def add(self, beats: Iterable[OpenStep], released: Sequence[tuple[Prompt, OpenStep]]) -> None:
        """Take in a finished busy time: its steps, and the prompts with the steps that made their first tokens."""
        makers = {id(beat) for _, beat in released}
        carriers = [beat for beat in beats if id(beat) in makers or (beat.long and had_work(beat, released))]
        position = {id(beat): index for index, beat in enumerate(carriers)}
        prompts = [(prompt, position[id(beat)]) for prompt, beat in released if id(beat) in position]
        run = Run(carriers, in_order(prompts))
        if run.busy().tokens >= FEWEST_TOKENS:
            self._runs.append(run)
            self._seen += 1
            self._dirty = True
            run.cost = run.bounded(self._cost())

    def add_step(self, beat: OpenStep) -> None:
        """Take in a final step with its riders."""
        seen = self._engine.proven and all(prompt.first_ns is not None for prompt, _ in beat.riders)
        if (seen or beat.told) and beat.used >= FEWEST_TOKENS:
            self._steps.append(beat)
            self._new_steps += 1
            if NEWS * self._new_steps >= len(self._steps):
                self._new_steps = 0
                self._dirty = True

    def _cost(self) -> StepCost:
        """From what is known for sure, or from all there is as long as that is little."""
        if self._relies_on_others:
            return self._recalled.cost
        runs = [run for run in self._runs if run.whole]
        sure = [run for run in runs if all(prompt.sure for prompt, _ in run.prompts)]
        steps = [beat for beat in self._steps if beat.told or all(prompt.was_right for prompt, _ in beat.riders)]
        singles = [Busy(1, beat.used, beat.token_contexts, beat.excess_ns) for beat in steps]
        if not runs and len(steps) < FEWEST_TOLD:
            return StepCost()
        enough = len(sure) >= ENOUGH_RUNS
        return fit([*(run.busy() for run in (sure if enough else runs)), *singles])

    def _learn(self) -> Engine:
        if self._relies_on_others:
            return self._recalled
        weighted = self._weighted()
        if not weighted:
            return Engine(cost=self._cost())
        misfits = self._misfits(weighted, self._policies)
        best = min(self._policies, key=misfits.__getitem__)
        steps = sum(weight * len(run.beats) for run, weight in weighted)
        if steps - sum(weight for _, weight in weighted) > ENOUGH_STEPS and misfits[best] > POOR_FIT * steps:
            best = self._refined(weighted, best, misfits[best])
            misfits |= self._misfits(weighted, [best])
        whole = min((each for each in self._policies if not each.chunked), key=misfits.__getitem__)
        if misfits[whole] < misfits[best] + PROVEN_BY:
            best = whole
        proven = misfits[BOUNDLESS] >= misfits[best] + PROVEN_BY and misfits[best] <= POOR_FIT * steps
        return best.engine(self._cost(), proven)

    def _weighted(self) -> list[tuple[Run, float]]:
        """Busy times that can tell budgets apart, the latest with the greatest weight."""
        return [(run, FORGET**age) for age, run in enumerate(reversed(self._runs)) if run.tells_budget]

    def _misfits(self, weighted: list[tuple[Run, float]], policies: Iterable[Policy]) -> dict[Policy, float]:
        return {policy: sum(weight * run.misfit(policy) for run, weight in weighted) for policy in policies}

    def _refined(self, weighted: list[tuple[Run, float]], best: Policy, misfit: float) -> Policy:
        """Look for budgets between the powers of two, then closer around the best of them, and for caps."""
        if self._seen < self._refine_at:
            return best
        self._refine_at = self._seen + max(4, len(self._runs) // 4)
        found, least = best, misfit
        between = [Policy(round(best.budget * 2 ** (step / FINER)), best.chunked) for step in range(-FINER, FINER + 1)]
        for tries in (between, None, caps_around(best)):
            tries = tries or [
                Policy(round(found.budget * 2 ** (step / FINER**2)), found.chunked) for step in range(-FINER, FINER)
            ]
            misfits = self._misfits(weighted, tries)
            nearest = min(tries, key=misfits.__getitem__)
            if misfits[nearest] < least:
                found, least = nearest, misfits[nearest]
        if least > MUCH_BETTER * misfit:
            return best
        self._policies.append(found)
        return found


def had_work(beat: OpenStep, released: Iterable[tuple[Prompt, OpenStep]]) -> bool:
    """Whether a prompt of the busy time can have been in a step at all."""
    return any(prompt.sent_ns <= beat.start_ns and beat.end_ns <= maker.end_ns for prompt, maker in released)


def in_order(prompts: list[tuple[Prompt, int]]) -> list[tuple[Prompt, int]]:
    """Prompts in the order in which they are to be placed: by first tokens. Those without one come when all that had
    arrived before them have theirs."""
    served = sorted((pair for pair in prompts if pair[0].gone_ns is None), key=lambda pair: (pair[1], pair[0].sent_ns))
    for prompt, last in sorted(
        (pair for pair in prompts if pair[0].gone_ns is not None), key=lambda pair: pair[0].sent_ns
    ):
        before = [number for number, (other, its) in enumerate(served) if its < last or other.sent_ns < prompt.sent_ns]
        served.insert(max(before, default=-1) + 1, (prompt, last))
    return served


def caps_around(best: Policy) -> list[Policy]:
    return [Policy(budget, cap=cap) for budget in POWERS for cap in POWERS if cap < budget <= 8 * best.budget]
