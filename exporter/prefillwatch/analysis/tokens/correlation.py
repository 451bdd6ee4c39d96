"""Do gaps grow when prompts are being read? Rank correlation, per second, of the worst gap and the prompt in service.

One pair per second in which tokens came: the longest gap that ended in it and the largest prompt that was in service
during any of its gaps. Spearman's rho (ranks, ties averaged) needs no linear law, so one very long prompt does not
make the figure by itself. A correlation is not a cause: see the stall verdicts for that.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np
import numpy.typing as npt

#: Fewer seconds than this say nothing about rank order.
MIN_PAIRS: Final = 10


class GapPromptCorrelation:
    """Pairs of the last ``longest_s`` seconds."""

    __slots__ = ("_longest_s", "_pairs")

    def __init__(self, longest_s: int) -> None:
        self._longest_s = longest_s
        self._pairs: deque[tuple[int, float, int]] = deque()

    def add(self, second: int, worst_gap_seconds: float, prompt_tokens: int) -> None:
        """Gaps that ended in this second; may be called several times for one second, in any order of values."""
        if self._pairs and self._pairs[-1][0] >= second:
            last, gap, tokens = self._pairs.pop()
            self._pairs.append((last, max(gap, worst_gap_seconds), max(tokens, prompt_tokens)))
        else:
            self._pairs.append((second, worst_gap_seconds, prompt_tokens))
        while self._pairs[0][0] <= self._pairs[-1][0] - self._longest_s:
            self._pairs.popleft()

    def ratio(self, now_second: int, window_s: int) -> float | None:
        """Spearman's rho in -1..1; None with too few seconds, or when one side never varied."""
        pairs = [(gap, tokens) for second, gap, tokens in self._pairs if second > now_second - window_s]
        if len(pairs) < MIN_PAIRS or any(min(side) == max(side) for side in zip(*pairs, strict=True)):
            return None
        gaps = _ranks(np.array([pair[0] for pair in pairs]))
        tokens = _ranks(np.array([pair[1] for pair in pairs], np.float64))
        return float(np.corrcoef(gaps, tokens)[0, 1])


def _ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Ranks from 0, ties averaged."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts) - 1
    return (last - (counts - 1) / 2)[inverse]
