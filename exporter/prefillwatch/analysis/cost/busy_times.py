"""The law of prompt costs from busy times: a low quantile of their excess over clear steps.

A busy time is a run of long steps; its cost is all their excess over clear steps, set against all the prompts it
served. Single prompts would teach nothing yet: of prompts whose first tokens coincide the later ones get almost no
service of their own. Once prompts are placed in steps with certainty, single steps teach more, the price of long
contexts above all.

Example: three steps of 220, 220 and 120 ms where clear ones take 20 served one prompt of 5,000 tokens. The excess is
500 ms, so a token costs 0.1 ms, whichever of the steps had how many of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from prefillwatch.analysis.arrays import FloatArray
from prefillwatch.analysis.cost.law import StepLaw
from prefillwatch.analysis.tuning import CostRules

#: Errors below these count alike, from one round of a fit to the next.
SMALL_ERRORS: Final = (0.3, 0.2, 0.1, 0.05, 0.02, 0.02)


@dataclass(frozen=True, slots=True)
class Busy:
    """A busy time or a single step: steps that carried a prompt, uncached tokens, the same times their mean context,
    and the time beyond that of clear steps."""

    steps: int
    tokens: int
    token_contexts: float
    excess_ns: float


def low_quantile_law(busy: Sequence[Busy], rules: CostRules) -> StepLaw:
    """A law of the excess time, as simple as the data allows: by token, then with context, with a price for any prompt,
    with both."""
    used = [each for each in busy if each.excess_ns > 0 and each.tokens > 0]
    if not used:
        return StepLaw()
    tokens = np.array([each.tokens for each in used], np.float64)
    terms = np.array([(each.tokens, each.token_contexts, each.steps) for each in used], np.float64)
    excess = np.array([each.excess_ns for each in used], np.float64)
    # Errors count per token: relative to the time itself, one wrongly short step would outweigh all others.
    scale = tokens * float(np.median(excess / tokens))
    fit = _QuantileFit(terms / scale[:, None], excess / scale, np.sqrt(tokens), rules.low_quantile)
    best = np.array((fit.of_tokens_alone(), 0.0, 0.0))
    error = fit.mean_error(best)
    for chosen in ([0, 1], [0, 2], [0, 1, 2]):
        if len(used) >= rules.busy_times_per_term * len(chosen):
            factors = fit.refined(best, chosen)
            its_error = fit.mean_error(factors)
            if (factors >= 0).all() and factors[0] > 0 and its_error < rules.better * error:
                best, error = factors, its_error
    token_ns, context_ns, mixed_ns = best.tolist()
    return StepLaw(token_ns, context_ns, mixed_ns, len(used) >= rules.trusted_from)


@dataclass(frozen=True, slots=True, eq=False)
class _QuantileFit:
    """Factors of the terms, so that ``quantile`` of the weight of all values lies below terms times factors."""

    terms: FloatArray
    #: Of the order of 1.
    values: FloatArray
    weights: FloatArray
    quantile: float

    def of_tokens_alone(self) -> float:
        """The factor of the first term where it is the only one: a weighted quantile of values per token."""
        values = self.values / self.terms[:, 0]
        order = np.argsort(values)
        passed = np.cumsum(self.weights[order])
        return float(values[order][int(passed.searchsorted(self.quantile * passed[-1]))])

    def refined(self, start: FloatArray, chosen: list[int]) -> FloatArray:
        """Factors of the chosen terms by iteratively reweighted least squares on the pinball loss, from factors that
        are about right: from anywhere else it would not get past the first outlier."""
        factors = start
        for smallest in SMALL_ERRORS:
            rest = self.values - self.terms @ factors
            pull = np.sqrt(self._tilted(rest) * self.weights / np.maximum(np.abs(rest), smallest))
            solved = np.linalg.lstsq(self.terms[:, chosen] * pull[:, None], self.values * pull, rcond=None)[0]
            factors = np.zeros(self.terms.shape[1])
            factors[chosen] = solved
        return factors

    def mean_error(self, factors: FloatArray) -> float:
        rest = self.values - self.terms @ factors
        return float(np.sum(self._tilted(rest) * self.weights * np.abs(rest)) / self.weights.sum())

    def _tilted(self, rest: FloatArray) -> FloatArray:
        """How much an error counts by its sign; so the best fit is the quantile."""
        return np.where(rest > 0, self.quantile, 1 - self.quantile)
