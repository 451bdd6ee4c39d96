"""What steps and prompts cost at this engine: verdicts, metrics and advice ask here and nowhere else.

There is one law of step times (`law`), and two estimators of it, because there are two questions:

- *Can this prompt have taken so long?* Asked by the packing before it is known which steps had which prompt, and by
  verdicts in the midst of pauses. A low quantile over busy times (`busy_times`) answers it: it needs sums only, and
  what disturbs a busy time only ever makes it longer. It has a term for attention, since late chunks cost several
  times as much per token.
- *What does a step take, and how sure is that?* Asked by the metrics and the advice. A robust straight line through
  single final steps (`line`) answers it: the mean and not the low end, with a base and a quality.

They are of the same steps. They may differ by the disturbances that the mean has and the quantile leaves out, and
where contexts are long: the line then has the mean price of a token, the law by busy times the price without context.
A verdict allows `CostRules.slack` times the cost, and never less than steps with prompts of like size took per token (a
median over the very steps that the line goes through), so a time that the exported cost explains is never too long for
a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from prefillwatch.analysis.arrays import FloatArray, IntArray
from prefillwatch.analysis.cost.advice import Advice, Server, advise
from prefillwatch.analysis.cost.clear_step import ClearStep
from prefillwatch.analysis.cost.law import StepLaw
from prefillwatch.analysis.cost.samples import StepSample, StepSamples
from prefillwatch.analysis.tuning import DEFAULT, Tuning

#: What the images of a request may add to its text, until usage is known: a picture as large as models take them.
UNSEEN_TOKENS: Final = 16_384


class PromptWork(NamedTuple):
    """What of a prompt may have been computed in some time."""

    #: Uncached tokens computed then.
    tokens: int
    #: All uncached ones.
    uncached: int
    cached: int
    #: All of its tokens.
    prompt: int
    #: False: it may hold more than its text, as images.
    size_known: bool = True


class KnownCost(NamedTuple):
    """What was known of costs at a moment, so that a stall is not judged by what was learned from it."""

    law: StepLaw = StepLaw()
    #: The largest prompt seen by then.
    largest: int = 0


class Bound(NamedTuple):
    """How long prompts can have kept the engine busy, in nanoseconds."""

    #: By what prompts about as long were seen to take; None: none was seen.
    likely_ns: float | None
    #: Where a longer prompt may be dearer than any that was seen; without end where nothing bounds it.
    most_ns: float


class Costs:
    """The law of one engine, and the last steps of each model.

    ``law_of_busy_times`` hands out the law as it is learned by now, where busy times are packed (`steps.budget`);
    ``law_apart`` the same without what happened between two moments, and the largest prompt that it is of.
    ``smallest`` prompts, in tokens, are short by any measure (the first edge of the prompt buckets).
    """

    def __init__(
        self,
        clear: ClearStep,
        law_of_busy_times: Callable[[], StepLaw],
        law_apart: Callable[[int, int], tuple[StepLaw, int]],
        smallest: int,
        tuning: Tuning = DEFAULT,
    ) -> None:
        self.clear = clear
        self._law = law_of_busy_times
        self._law_apart = law_apart
        self._smallest = smallest
        self._rules = tuning.cost
        self._advice = tuning.advice
        self._models: dict[int, StepSamples] = {}
        self._largest = 0
        self._typical: float | None = None

    def add(self, model: int, steps: Sequence[StepSample]) -> None:
        """Final steps whose length was measured, booked under one model."""
        samples = self._models.get(model)
        if samples is None:
            samples = self._models[model] = StepSamples(self._rules)
        samples.add(steps)
        self._typical = None
        self.saw(max((step.largest for step in steps), default=0))

    def saw(self, largest: int) -> None:
        """A final step had so large a prompt in it, whether its length was measured or not."""
        self._largest = max(self._largest, largest)

    def newest(self, model: int, most: int) -> list[StepSample]:
        """The last steps of a model, those without a prompt first; at most so many of either kind."""
        samples = self._models.get(model)
        return samples.newest(most) if samples is not None else []

    def forget_model(self, model: int) -> None:
        self._models.pop(model, None)
        self._typical = None

    # --- What a prompt takes ---

    @property
    def slack(self) -> float:
        """A prompt may take so many times what it should."""
        return self._rules.slack

    @property
    def known(self) -> KnownCost:
        """By now."""
        return KnownCost(self._law(), self._largest)

    def known_apart(self, before: KnownCost, start_ns: int, end_ns: int) -> KnownCost:
        """What is known of costs by now, but for what happened between these moments, if that is more than was known
        ``before``: a first prompt is judged by those that came after it."""
        law, largest = self._law_apart(start_ns, end_ns)
        return KnownCost(law, largest) if law.known and largest >= before.largest else before

    def expected_ns(self, tokens: int, before: int = 0) -> float:
        """Time beyond clear steps for so many uncached prompt tokens that follow ``before`` tokens in the KV cache: by
        the law, and no less than the steps of late took per token. 0 while nothing is known."""
        return max(self._law().expect_ns(tokens, before), self._typical_ns() * tokens)

    def alone_ns(self, work: PromptWork, unlearned_token_ns: float) -> float:
        """Time beyond clear steps for a prompt that is served at once; per token this, while nothing is learned. A
        prompt larger than any seen counts as dearer by as much: attention makes its tokens dearer, at worst so."""
        if not self._law().known:
            return unlearned_token_ns * work.uncached
        dearer = max(1.0, work.prompt / self._largest) if self._largest else 1.0
        return dearer * self.expected_ns(work.uncached, work.cached)

    def at_most_ns(
        self, prompts: Sequence[PromptWork], known: KnownCost, start_ns: int, end_ns: int | None = None
    ) -> Bound:
        """How long these prompts can have kept the engine busy between two moments (``end_ns`` None: it lasts), by
        what was known before. Without bound where nothing is learned that would bound them."""
        if not prompts:
            return Bound(0.0, 0.0)
        unseen = UNSEEN_TOKENS * sum(not each.size_known for each in prompts)
        whole = sum(each.uncached for each in prompts) + unseen
        largest = max(each.prompt for each in prompts)
        token_ns, step_ns = self._alike_ns(largest, start_ns, end_ns)
        alike_ns = token_ns * (sum(each.tokens for each in prompts) + unseen)
        # How many tokens each of those steps had is not sure while little is learned, but how long they took is.
        likely_ns = max(self._rules.slack * alike_ns, self._rules.odd_step * step_ns)
        if not known.law.known:
            return Bound(likely_ns or None, math.inf if whole > self._smallest else 0.0)
        expected_ns = sum(known.law.most_ns(each.tokens, each.cached, each.prompt) for each in prompts)
        expected_ns += known.law.expect_ns(unseen)
        if largest > self._smallest >= known.largest:
            return Bound(likely_ns or None, math.inf)  # short prompts tell nothing about a long one
        # A token costs the more the longer its prompt, at worst in proportion; short prompts do not show it.
        dearer = largest / max(known.largest, self._smallest)
        likely_ns = self._rules.slack * max(expected_ns, alike_ns)
        return Bound(likely_ns, likely_ns * max(1.0, dearer / self._rules.slack))

    def _typical_ns(self) -> float:
        """Median excess per prompt token of the steps of late; 0 while there are too few."""
        if self._typical is None:
            self._typical = self._median(samples.per_token_ns() for samples in self._models.values())
        return self._typical

    def _alike_ns(self, largest: int, start_ns: int, end_ns: int | None) -> tuple[float, float]:
        """The same, and the excess of a step, of the steps whose largest prompt was about as large, those that ended
        between these moments left out: a delay must not speak for itself.

        The law is for all sizes and lags behind: attention makes a token of a long prompt several times as dear as one
        of a short prompt, and that shows in it only after many prompts. Steps of a like kind say it at once.
        """
        found, excess = [], []
        for samples in self._models.values():
            sizes, ends_ns = samples.largest_and_ends()
            alike = (sizes * self._rules.alike >= largest) & (sizes <= self._rules.alike * largest)
            apart = ends_ns <= start_ns
            if end_ns is not None:
                apart |= ends_ns > end_ns
            found.append(samples.per_token_ns()[alike & apart])
            excess.append(samples.excess_ns()[alike & apart])
        return self._median(found), self._median(excess)

    def _median(self, arrays: Iterable[FloatArray | IntArray]) -> float:
        values = np.concatenate([*arrays, np.empty(0)])
        return float(np.median(values)) if len(values) >= self._rules.fewest_alike else 0.0

    # --- What a step takes ---

    def line(self, model: int) -> StepLaw | None:
        """The law of whole steps with its quality (`StepLaw.fit`), from the last steps of a model; None while there are
        too few, or where steps do not grow with their tokens."""
        samples = self._models.get(model)
        return samples.line() if samples is not None else None

    def steps_seen(self, model: int) -> int:
        """Steps with prompts that the line is drawn through."""
        samples = self._models.get(model)
        return samples.mixed if samples is not None else 0

    def advised(self, model: int, target_s: float, server: Server, longest_prompt: int) -> Advice:
        """The step budget that keeps the gaps of a model under their target."""
        return advise(
            self.line(model),
            target_s,
            server,
            longest_prompt,
            self.steps_seen(model),
            self._advice,
            self._rules.fewest_steps,
        )
