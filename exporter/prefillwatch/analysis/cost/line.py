"""The law of step times from single steps: a robust straight line, base + cost x uncached prompt tokens in the step.

The base is the median of the last steps without a prompt; the slope is found from it by least squares, reweighted after
Huber, through as many of the last steps with prompts. Pauses and recomputed contexts are outliers and lose their
weight. The base is not left to the fit: where contexts are long, steps with prompts do not lie on a line, and a fit of
both would find a clear step that nobody has seen. The quality is R squared over both kinds of steps, under the same
weights.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from prefillwatch.analysis.arrays import FloatArray, IntArray
from prefillwatch.analysis.cost.clear_step import MAD_TO_SIGMA
from prefillwatch.analysis.cost.law import StepLaw
from prefillwatch.analysis.tuning import CostRules
from prefillwatch.units import NS

_ROUNDS: Final = 12


def straight_line(tokens: IntArray, took_ns: IntArray, quiet_ns: IntArray, rules: CostRules) -> StepLaw | None:
    """From steps with so many prompt tokens, how long they took, and how long steps without took. None while there are
    too few of either, or where steps do not grow with their tokens."""
    if min(len(tokens), len(quiet_ns)) < rules.fewest_steps:
        return None
    x = np.concatenate((tokens, np.zeros(len(quiet_ns)))).astype(np.float64)
    y = np.concatenate((took_ns, quiet_ns)) / NS
    base = float(np.median(quiet_ns)) / NS
    slope, weights = huber_slope(x, y, base, rules.outlier)
    if slope <= 0 or base <= 0:
        return None
    fit = _r_squared(y, base + slope * x, weights)
    return StepLaw(slope * NS, base_ns=base * NS, fit=fit, steps=len(tokens), largest=int(tokens.max()))


def huber_slope(x: FloatArray, y: FloatArray, base: float, outlier: float) -> tuple[float, FloatArray]:
    """Slope of a robust straight line that begins at ``base``, and the weight that each point ended up with. Errors
    beyond ``outlier`` deviations lose weight."""
    weights: FloatArray = np.ones(len(x))
    slope = 0.0
    for _ in range(_ROUNDS):
        slope = float((weights * x * (y - base)).sum() / (weights * x * x).sum())
        # Longer steps scatter by more seconds, so what counts is the error in parts of the step.
        relative = np.abs(y - base - slope * x) / np.maximum(base + slope * x, 1e-6)
        scale = max(MAD_TO_SIGMA * float(np.median(relative)), 1e-4)
        weights = np.minimum(1.0, outlier * scale / np.maximum(relative, 1e-12)) ** 2
    return slope, weights


def _r_squared(y: FloatArray, expected: FloatArray, weights: FloatArray) -> float:
    mean = np.average(y, weights=weights)
    total = float((weights * (y - mean) ** 2).sum())
    rest = float((weights * (y - expected) ** 2).sum())
    return max(0.0, 1 - rest / total) if total > 0 else 0.0
