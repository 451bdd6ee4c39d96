"""What prompt tokens cost in step time, learned from busy times.

A busy time is a run of long steps; its cost is all their excess over clear steps, set against all the prompts it
served. Single prompts would teach nothing: of prompts whose first tokens coincide the later ones get almost no
service of their own. Once prompts are placed in steps with certainty, single steps teach more, the price of long
contexts above all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from prefillwatch.analysis.arrays import FloatArray

if TYPE_CHECKING:
    from collections.abc import Sequence


FOREVER = 1 << 40

LOW_QUANTILE = 0.35
"""The cost is a lower quantile: whatever else happens in a busy time (a pause, a recomputation) only adds to it."""

SMALL_ERRORS = (0.3, 0.2, 0.1, 0.05, 0.02, 0.02)
"""Errors below these count alike, from one round of a fit to the next."""

TRUSTED_FROM = 6
"""Busy times or steps from which on a cost is good enough to tell cached tokens."""

RUNS_PER_TERM = 4
"""So many busy times per term of the cost before the term is believed …"""
BETTER = 0.8
"""… and its error must be so much smaller with it than without."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """Excess time of a step in nanoseconds: per uncached prompt token, per such token and token of context before it
    (attention), and for carrying any prompt at all. All zero: nothing learned yet."""

    token_ns: float = 0.0
    context_ns: float = 0.0
    mixed_ns: float = 0.0
    trusted: bool = False
    """Whether it was learned from more than a few busy times."""

    @property
    def known(self) -> bool:
        return self.token_ns > 0

    def expect_ns(self, tokens: int, before: int = 0) -> float:
        """Excess time of a step for so many prompt tokens that follow ``before`` tokens in the KV cache."""
        if tokens <= 0:
            return 0.0
        return self.mixed_ns + tokens * (self.token_ns + self.context_ns * (before + tokens / 2))

    def scaled(self, factor: float) -> StepCost:
        return StepCost(factor * self.token_ns, factor * self.context_ns, factor * self.mixed_ns, self.trusted)

    def tokens_in(self, excess_ns: float) -> int:
        """Prompt tokens without context before them that take this long; without end while nothing is learned."""
        if not self.known:
            return FOREVER
        rest_ns = max(0.0, excess_ns - self.mixed_ns)
        if not self.context_ns:
            return round(rest_ns / self.token_ns)
        slope = self.token_ns / self.context_ns
        return round(math.sqrt(slope**2 + 2 * rest_ns / self.context_ns) - slope)


@dataclass(frozen=True, slots=True)
class Busy:
    """A busy time or a single step: steps that carried a prompt, uncached tokens, the same times their mean context,
    and the time beyond that of clear steps."""

    steps: int
    tokens: int
    token_contexts: float
    excess_ns: float


def fit(busy: Sequence[Busy]) -> StepCost:
    """Cost from busy times, as simple as the data allows."""
    used = [each for each in busy if each.excess_ns > 0 and each.tokens > 0]
    if not used:
        return StepCost()
    tokens = np.array([each.tokens for each in used], np.float64)
    terms = np.array([(each.tokens, each.token_contexts, each.steps) for each in used], np.float64)
    excess = np.array([each.excess_ns for each in used], np.float64)
    # Errors count per token: relative to the time itself, one wrongly short step would outweigh all others.
    scale = tokens * float(np.median(excess / tokens))
    terms, excess, weights = terms / scale[:, None], excess / scale, np.sqrt(tokens)
    simple = weighted_quantile(excess / terms[:, 0], weights)
    best, error = np.array((simple, 0.0, 0.0)), mean_error(excess - terms[:, 0] * simple, weights)
    for chosen in ([0, 1], [0, 2], [0, 1, 2]):
        if len(used) >= RUNS_PER_TERM * len(chosen):
            factors = refined(best, terms, excess, weights, chosen)
            its_error = mean_error(excess - terms @ factors, weights)
            if (factors >= 0).all() and factors[0] > 0 and its_error < BETTER * error:
                best, error = factors, its_error
    token_ns, context_ns, mixed_ns = best.tolist()
    return StepCost(token_ns, context_ns, mixed_ns, len(used) >= TRUSTED_FROM)


def refined(
    start: FloatArray, terms: FloatArray, values: FloatArray, weights: FloatArray, chosen: list[int]
) -> FloatArray:
    """Factors of the chosen terms for a low quantile of the values, which are of the order of 1.

    Iteratively reweighted least squares on the pinball loss, from factors that are about right: from anywhere else it
    would not get past the first outlier.
    """
    factors = start
    for smallest in SMALL_ERRORS:
        rest = values - terms @ factors
        pull = np.sqrt(tilted(rest) * weights / np.maximum(np.abs(rest), smallest))
        solved = np.linalg.lstsq(terms[:, chosen] * pull[:, None], values * pull, rcond=None)[0]
        factors = np.zeros(terms.shape[1])
        factors[chosen] = solved
    return factors


def tilted(rest: FloatArray) -> FloatArray:
    """How much an error counts by its sign, so that the best fit is a low quantile."""
    return np.where(rest > 0, LOW_QUANTILE, 1 - LOW_QUANTILE)


def mean_error(rest: FloatArray, weights: FloatArray) -> float:
    return float(np.sum(tilted(rest) * weights * np.abs(rest)) / weights.sum())


def weighted_quantile(values: FloatArray, weights: FloatArray) -> float:
    """The value below which the low share of all weight lies."""
    order = np.argsort(values)
    passed = np.cumsum(weights[order])
    return float(values[order][int(passed.searchsorted(LOW_QUANTILE * passed[-1]))])
