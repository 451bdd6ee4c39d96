"""The law of step times from single steps: a robust straight line, base + cost x uncached prompt tokens in the step.

Least squares, reweighted after Huber, through the last steps with prompts and as many of the last ones without: quiet
times pin down the base, mixed load the slope. Pauses and recomputed contexts are outliers and lose their weight. The
fit is R squared under the same weights.
"""

from __future__ import annotations

import numpy as np

from prefillwatch.analysis.arrays import FloatArray, IntArray
from prefillwatch.analysis.cost.clear_step import MAD_TO_SIGMA
from prefillwatch.analysis.cost.law import StepLaw
from prefillwatch.analysis.tuning import CostRules
from prefillwatch.units import NS

_ROUNDS = 12


def straight_line(tokens: IntArray, took_ns: IntArray, quiet_ns: IntArray, rules: CostRules) -> StepLaw | None:
    """From steps with so many prompt tokens, how long they took, and how long steps without took. None while there are
    too few of either, or where steps do not grow with their tokens."""
    if min(len(tokens), len(quiet_ns)) < rules.fewest_steps:
        return None
    x = np.concatenate((tokens, np.zeros(len(quiet_ns)))).astype(np.float64)
    y = np.concatenate((took_ns, quiet_ns)) / NS
    base, slope, weights = huber_line(x, y, rules.outlier)
    if slope <= 0 or base <= 0:
        return None
    fit = _r_squared(x, y, base, slope, weights)
    return StepLaw(slope * NS, base_ns=base * NS, fit=fit, steps=len(tokens), largest=int(tokens.max()))


def huber_line(x: FloatArray, y: FloatArray, outlier: float) -> tuple[float, float, FloatArray]:
    """Intercept and slope of a robust straight line, and the weight that each point ended up with. Errors beyond
    ``outlier`` deviations lose weight."""
    weights: FloatArray = np.ones(len(x))
    rows = np.stack((np.ones(len(x)), x), axis=1)
    base = slope = 0.0
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        (base, slope), *_ = np.linalg.lstsq(rows * root[:, None], y * root, rcond=None)
        rest = np.abs(y - base - slope * x)
        # Longer steps scatter by more seconds, so what counts is the error in parts of the step.
        relative = rest / np.maximum(base + slope * x, 1e-6)
        scale = max(MAD_TO_SIGMA * float(np.median(relative)), 1e-4)
        weights = np.minimum(1.0, outlier * scale / np.maximum(relative, 1e-12)) ** 2
    return float(base), float(slope), weights


def _r_squared(x: FloatArray, y: FloatArray, base: float, slope: float, weights: FloatArray) -> float:
    mean = np.average(y, weights=weights)
    total = float((weights * (y - mean) ** 2).sum())
    rest = float((weights * (y - base - slope * x) ** 2).sum())
    return max(0.0, 1 - rest / total) if total > 0 else 0.0
