"""The last final steps of one model, as certain as the prefill timeline is about them: what line and medians are of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from prefillwatch.analysis.arrays import FloatArray, IntArray
from prefillwatch.analysis.cost.law import StepLaw
from prefillwatch.analysis.cost.line import straight_line
from prefillwatch.analysis.ring import Ring
from prefillwatch.analysis.tuning import CostRules

#: Steps kept with prompts and without, and how many of each the line is drawn through.
_KEPT: Final = 1024
_IN_LINE: Final = 512


class StepSample(NamedTuple):
    """A step whose length was measured. Times in nanoseconds."""

    end_ns: int
    took_ns: int
    #: Beyond a clear step.
    excess_ns: int
    #: Uncached prompt tokens in it.
    tokens: int = 0
    #: Size of the largest prompt in it.
    largest: int = 0


class StepSamples:
    """Steps with prompts and steps without, the newest of each."""

    def __init__(self, rules: CostRules) -> None:
        self._rules = rules
        self._mixed: Ring[np.int64] = Ring(_KEPT, len(StepSample._fields), np.int64)
        self._quiet: Ring[np.int64] = Ring(_IN_LINE, 1, np.int64)
        """How long they took."""
        self._law: StepLaw | None = None
        self._is_new = False

    @property
    def mixed(self) -> int:
        """Steps with prompts that the line is drawn through."""
        return min(len(self._mixed), _IN_LINE)

    def add(self, steps: Iterable[StepSample]) -> None:
        steps = list(steps)
        mixed = [step for step in steps if step.tokens]
        if mixed:
            self._mixed.add(*zip(*mixed, strict=True))
        if len(mixed) < len(steps):
            self._quiet.add([step.took_ns for step in steps if not step.tokens])
        self._is_new = True

    def newest(self, most: int) -> list[StepSample]:
        """The last steps, at most so many without a prompt, of which only the length is kept, then as many with one."""
        quiet = [StepSample(0, took_ns, 0) for took_ns in self._quiet.newest(most)[0].tolist()]
        return quiet + [StepSample(*row) for row in self._mixed.newest(most).T.tolist()]

    def line(self) -> StepLaw | None:
        """The law by now."""
        if self._is_new:
            self._is_new = False
            mixed = self._mixed.newest(_IN_LINE)
            (quiet_ns,) = self._quiet.newest(mixed.shape[1])
            self._law = straight_line(mixed[3], mixed[1], quiet_ns, self._rules)
        return self._law

    def excess_ns(self) -> IntArray:
        """Time beyond a clear step of all steps with prompts."""
        excess_ns: IntArray = self._mixed.kept()[2]
        return excess_ns

    def per_token_ns(self) -> FloatArray:
        """Excess per prompt token of all steps with prompts."""
        _, _, excess_ns, tokens, _ = self._mixed.kept()
        per_token: FloatArray = excess_ns / tokens
        return per_token

    def largest_and_ends(self) -> tuple[IntArray, IntArray]:
        """Of the same steps: the largest prompt in each, and when it ended."""
        ends_ns, _, _, _, largest = self._mixed.kept()
        return largest, ends_ns
