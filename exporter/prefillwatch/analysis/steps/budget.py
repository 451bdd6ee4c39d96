"""How many tokens the engine puts into a step, read off the busy times.

Every busy time is packed anew under one supposed budget after another, with and without chunked prefill. Under the true
one the prompts fit into the steps, and every step took the time that its tokens cost. Under a smaller one prompts
find no room, under a larger one long steps stay empty. The longest steps alone would show less: attention makes late
chunks of a long prompt so dear that they suggest twice the budget.

Example: two prompts of 3,000 tokens arrived together; steps of 224, 224 and 212 ms followed where a clear one takes
20 ms and a token 0.1 ms, with 8 streams decoding. The first token of one came after the second step, that of the other
after the third. Supposed budgets:

- 1,024: three steps have room for 3,048 tokens, half of what was served. Much is without a place: a large misfit.
- 2,048: the first prompt takes 2,040 and 960, the second 1,080 and 1,920. Each step took about what that costs: hardly
  any misfit.
- 4,096: the first prompt fits into the second step alone, so the first step took 205 ms for nothing: a large misfit.

`Run` is one busy time and knows its misfit under each `Policy`; `Learner` sums them up over the last busy times, the
latest with the greatest weight, and takes the policy with the least. The law of costs is learned beside it, from the
same busy times (`cost.busy_times`), since each needs the other: placing needs a cost, and a cost needs placed prompts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from prefillwatch.analysis.arrays import FloatArray
from prefillwatch.analysis.cost import Busy, StepLaw, low_quantile_law
from prefillwatch.analysis.steps.packing import UNLIMITED, Engine, OpenStep, Packing, Prompt
from prefillwatch.analysis.tuning import DEFAULT, Tuning
from prefillwatch.units import NS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: The cost is learned anew when one in so many steps is new: a bound on work.
NEWS: Final = 8
#: From busy times that follow one another it is learned no more often than that: another one.
LEARNED_EVERY_NS: Final = NS // 4

#: A longer busy time is not packed anew: a bound on work.
MOST_STEPS: Final = 500

#: Busy times are learned from while they have no more prompts than so many a second, and so many at once: a bound on
#: work. Where prompts come faster, what is learned follows the engine within seconds all the same.
PROMPTS_PER_SECOND: Final = 32
PROMPTS_AT_ONCE: Final = 256

#: Number of budgets tried between one power of two and the next.
FINER: Final = 16


class Policy(NamedTuple):
    """How the engine may fill its steps."""

    budget: int
    chunked: bool = True
    #: Tokens of one prompt per step.
    cap: int = UNLIMITED

    def engine(self, law: StepLaw, proven: bool = False) -> Engine:
        return Engine(self.budget, self.cap, self.chunked, proven, law)


POWERS: Final = tuple(1 << exponent for exponent in range(9, 18))
BOUNDLESS: Final = Policy(POWERS[-1])
COARSE: Final = tuple(Policy(budget, chunked) for chunked in (True, False) for budget in POWERS)


@dataclass(slots=True, eq=False)
class Run:
    """A finished busy time: its steps, and its prompts with the index of the step that made the first token of each, or
    in which its client left."""

    steps: list[OpenStep]
    prompts: list[tuple[Prompt, int]]
    tuning: Tuning = DEFAULT
    law: StepLaw = field(default_factory=StepLaw)
    misfits: dict[Policy, float] = field(default_factory=dict)
    #: Misfits of the policies that `misfits_of` was asked for.
    in_turn: FloatArray = field(default_factory=lambda: np.zeros(0))
    #: The first step after those made up from first tokens: they may have been any number of steps.
    begin: int = field(init=False)
    #: Whether it is known how many tokens were served: no client left while its prompt may have been read.
    whole: bool = field(init=False)
    shows_budget: bool = field(init=False)

    def __post_init__(self) -> None:
        self.begin = 1 + max((index for index, step in enumerate(self.steps) if not step.observed), default=-1)
        self.whole = all(prompt.gone_ns is None for prompt, _ in self.prompts)
        seen = any(last >= self.begin and prompt.gone_ns is None for prompt, last in self.prompts)
        self.shows_budget = seen and len(self.steps) <= MOST_STEPS

    def touches(self, start_ns: int, end_ns: int) -> bool:
        return bool(self.steps) and self.steps[0].start_ns < end_ns and start_ns < self.steps[-1].end_ns

    def busy(self) -> Busy:
        """What it says about the cost. Once its prompts are placed, the steps without any do not count."""
        tokens, context = 0, 0.0
        for prompt, _ in self.prompts:
            if prompt.gone_ns is None:
                tokens += prompt.uncached
                context += prompt.uncached * (prompt.cached + prompt.uncached / 2)
        carriers = [step for step in self.steps if step.shares] or self.steps
        return Busy(len(carriers), tokens, context, sum([step.excess_ns for step in carriers]))

    def misfits_of(self, policies: Sequence[Policy]) -> FloatArray:
        """`misfit` of each; the list may grow at its end from one call to the next."""
        new = policies[len(self.in_turn) :]
        if new:
            self.in_turn = np.append(self.in_turn, [self.misfit(each) for each in new])
        return self.in_turn

    def misfit(self, policy: Policy) -> float:
        """Steps' worth of time and tokens that are in the wrong place under a policy."""
        found = self.misfits.get(policy)
        if found is None:
            packing = Packing(policy.engine(self.law), self.tuning)
            found = self.misfits[policy] = len(self.steps) * self._misplaced(packing)
        return found

    def bounded(self, law: StepLaw) -> StepLaw:
        """The law, or as much less as would make all prompts fit into the time there was."""
        expected_ns = sum(law.expect_ns(prompt.uncached, prompt.cached) for prompt, _ in self.prompts)
        return law.scaled(min(1.0, sum(step.excess_ns for step in self.steps) / max(1.0, expected_ns)))

    def _misplaced(self, packing: Packing) -> float:
        steps = [step.emptied() for step in self.steps[self.begin :]]
        for prompt, last in self.prompts:
            if prompt.gone_ns is not None:
                packing.pack_gone(steps, prompt)
            elif last >= self.begin:
                packing.pack_back(steps, last - self.begin, prompt)
        tokens = sum(prompt.uncached for prompt, last in self.prompts if prompt.gone_ns is None and last >= self.begin)
        placed = sum(each for step in steps for prompt, each in step.shares if prompt.gone_ns is None)
        total = sum(prompt.uncached for prompt, _ in self.prompts)
        plausible_ns = self.tuning.cost.slack * packing.law.expect_ns(total)
        return misplaced_time(steps, plausible_ns) + (tokens - placed) / tokens


def misplaced_time(steps: Sequence[OpenStep], plausible_ns: float) -> float:
    """Share of the time of all steps that does not agree with the prompts in them. What goes beyond a plausible time of
    a step is not the prompts', but a pause."""
    excess = [min(step.excess_ns, plausible_ns) for step in steps]
    expected_ns = sum(step.expected_ns for step in steps)
    if not sum(excess) or not expected_ns:
        return 0.0
    scale = sum(excess) / expected_ns
    off = sum(abs(its_ns - scale * step.expected_ns) for its_ns, step in zip(excess, steps, strict=True))
    return off / (2 * sum(excess))


class Learner:
    """Learns budget and cost from the last busy times."""

    __slots__ = (
        "_dirty",
        "_engine",
        "_known_law",
        "_last_law",
        "_law_ns",
        "_new_steps",
        "_policies",
        "_recalled",
        "_refine_at",
        "_room",
        "_room_ns",
        "_rules",
        "_runs",
        "_seen",
        "_steps",
        "_tuning",
    )

    def __init__(self, tuning: Tuning = DEFAULT) -> None:
        self._tuning = tuning
        self._rules = tuning.budget
        self._runs: deque[Run] = deque(maxlen=self._rules.busy_times)
        self._steps: deque[OpenStep] = deque(maxlen=self._rules.steps)
        self._engine = self._recalled = Engine()
        self._dirty = False
        self._known_law: StepLaw | None = None  # of all that is known by now, or nearly all
        self._law_ns = 0  # when the last busy time ended that made it be learned anew
        self._last_law: StepLaw | None = None  # that the last busy time had time for
        self._room: float = PROMPTS_AT_ONCE  # for so many prompts more, as of a moment
        self._room_ns = 0
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
        return replace(self.engine, cost=self._last_law) if self._last_law is not None else self.engine

    def recall(self, engine: Engine) -> None:
        """What another learned about this engine counts until enough was seen here."""
        self._engine = self._recalled = engine
        self._dirty, self._known_law = True, None

    @property
    def _relies_on_others(self) -> bool:
        return self._recalled.cost.known and len(self._runs) < self._rules.enough_sure

    def resized(self, prompt: Prompt) -> None:
        """The size of a prompt was corrected."""
        if prompt.taught:
            self._dirty, self._known_law = True, None

    def add(self, steps: Iterable[OpenStep], finished: Sequence[tuple[Prompt, OpenStep]]) -> None:
        """Take in a finished busy time: its steps, and the prompts with the steps that made their first tokens."""
        makers = {id(step) for _, step in finished}
        carriers = [step for step in steps if id(step) in makers or (step.long and had_work(step, finished))]
        position = {id(step): index for index, step in enumerate(carriers)}
        prompts = [(prompt, position[id(step)]) for prompt, step in finished if id(step) in position]
        run = Run(carriers, in_order(prompts), self._tuning)
        if run.busy().tokens >= self._rules.fewest_tokens:
            if self._has_room(len(prompts), carriers[-1].end_ns):
                self._runs.append(run)
                self._seen += 1
                for prompt, _ in prompts:
                    prompt.taught = True
                self._dirty = True
                if not 0 <= carriers[-1].end_ns - self._law_ns < LEARNED_EVERY_NS:
                    self._law_ns, self._known_law = carriers[-1].end_ns, None
            run.law = self._last_law = run.bounded(self._law())

    def _has_room(self, prompts: int, now_ns: int) -> bool:
        """Whether a busy time with so many prompts is learned from; if so, there is less room for the next."""
        if now_ns > self._room_ns:
            gained = (now_ns - self._room_ns) / NS * PROMPTS_PER_SECOND
            self._room, self._room_ns = min(self._room + gained, PROMPTS_AT_ONCE), now_ns
        if self._room <= 0:
            return False
        self._room -= prompts
        return True

    def add_step(self, step: OpenStep) -> None:
        """Take in a final step with the prompts in it."""
        seen = self._engine.proven and all(prompt.first_ns is not None for prompt, _ in step.shares)
        if (seen or step.reported) and step.tokens >= self._rules.fewest_tokens:
            self._steps.append(step)
            for prompt, _ in step.shares:
                prompt.taught = True
            self._new_steps += 1
            if NEWS * self._new_steps >= len(self._steps):
                self._new_steps = 0
                self._dirty, self._known_law = True, None

    def _law(self) -> StepLaw:
        """From what is known for sure, or from all there is as long as that is little."""
        if self._known_law is None:
            self._known_law = self._recalled.cost if self._relies_on_others else self._learn_law()
        return self._known_law

    def law_apart(self, start_ns: int, end_ns: int) -> tuple[StepLaw, int]:
        """The law of what did not happen between these moments, before them or after, and the largest prompt in it."""
        runs = [run for run in self._runs if run.whole and not run.touches(start_ns, end_ns)]
        steps = [step for step in self._steps if step.end_ns <= start_ns or step.start_ns >= end_ns]
        prompts = [prompt for run in runs for prompt, _ in run.prompts]
        prompts += [prompt for step in steps for prompt, _ in step.shares]
        singles = [Busy(1, step.tokens, step.token_contexts, step.excess_ns) for step in steps]
        law = low_quantile_law([*(run.busy() for run in runs), *singles], self._tuning.cost)
        return law, max((prompt.tokens for prompt in prompts), default=0)

    def _learn_law(self) -> StepLaw:
        size_error = self._tuning.packing.size_error
        runs = [run for run in self._runs if run.whole]
        sure = [run for run in runs if all(prompt.sure for prompt, _ in run.prompts)]
        steps = [
            step
            for step in self._steps
            if step.reported or all(prompt.was_right(size_error) for prompt, _ in step.shares)
        ]
        if not runs and len(steps) < self._rules.fewest_reported:
            return StepLaw()
        enough = len(sure) >= self._rules.enough_sure
        singles = [Busy(1, step.tokens, step.token_contexts, step.excess_ns) for step in steps]
        return low_quantile_law([*(run.busy() for run in (sure if enough else runs)), *singles], self._tuning.cost)

    def _learn(self) -> Engine:
        if self._relies_on_others:
            return self._recalled
        weighted = self._weighted()
        if not weighted:
            return Engine(cost=self._law())
        rows = np.stack([run.misfits_of(self._policies) for run, _ in weighted])
        weights = np.array([weight for _, weight in weighted])
        misfits = dict(zip(self._policies, (weights[:, None] * rows).sum(axis=0).tolist(), strict=True))
        best = min(self._policies, key=misfits.__getitem__)
        steps = sum(weight * len(run.steps) for run, weight in weighted)
        beyond_first = steps - sum(weight for _, weight in weighted)
        if beyond_first > self._rules.enough_steps and misfits[best] > self._rules.poor_fit * steps:
            best = self._refined(weighted, best, misfits[best])
            misfits |= self._misfits(weighted, [best])
        whole = min((each for each in self._policies if not each.chunked), key=misfits.__getitem__)
        if misfits[whole] < misfits[best] + self._rules.proven_by:
            best = whole
        refuted = misfits[BOUNDLESS] >= misfits[best] + self._rules.proven_by
        proven = refuted and misfits[best] <= self._rules.poor_fit * steps
        return best.engine(self._law(), proven)

    def _weighted(self) -> list[tuple[Run, float]]:
        """Busy times that can tell budgets apart, the latest with the greatest weight."""
        return [(run, self._rules.forget**age) for age, run in enumerate(reversed(self._runs)) if run.shows_budget]

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
        if least > self._rules.much_better * misfit:
            return best
        self._policies.append(found)
        return found


def had_work(step: OpenStep, finished: Iterable[tuple[Prompt, OpenStep]]) -> bool:
    """Whether a prompt of the busy time can have been in a step at all."""
    return any(prompt.sent_ns <= step.start_ns and step.end_ns <= maker.end_ns for prompt, maker in finished)


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
