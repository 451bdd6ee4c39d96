"""What steps with prompts took before: the yardstick for whether a prompt can have taken that long.

The learned cost is a law for all sizes and lags behind: attention makes a token of a long prompt several times as dear
as one of a short prompt, and that shows only after many prompts. Steps of a like kind say it at once.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

_KEPT: Final = 1024
_FEWEST: Final = 3
_ALIKE: Final = 2.0


class StepCosts:
    """The last steps that carried prompts, as certain as the prefill timeline is about them."""

    def __init__(self) -> None:
        self._end_ns: npt.NDArray[np.int64] = np.zeros(_KEPT, np.int64)
        self._largest: npt.NDArray[np.int64] = np.zeros(_KEPT, np.int64)
        self._per_token: npt.NDArray[np.float64] = np.zeros(_KEPT)
        self._count = 0
        self.largest = 0
        """The largest prompt seen so far."""

    def add(self, end_ns: int, tokens: int, largest: int, excess_ns: int) -> None:
        """A step with so many uncached prompt tokens, the largest prompt in it, and its time beyond a clear step."""
        place = self._count % _KEPT
        self._end_ns[place], self._largest[place], self._per_token[place] = end_ns, largest, excess_ns / tokens
        self._count += 1
        self.largest = max(self.largest, largest)

    def newest(self, most: int) -> list[tuple[int, int, float]]:
        """(end, largest prompt, excess per token) of the last steps, in order."""
        kept = min(self._count, most, _KEPT)
        places = (self._count - kept + np.arange(kept)) % _KEPT
        columns = (self._end_ns[places], self._largest[places], self._per_token[places])
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def typical_ns(self) -> float:
        """Median excess per token of all kept steps; 0 while there are too few."""
        kept = min(self._count, _KEPT)
        return float(np.median(self._per_token[:kept])) if kept >= _FEWEST else 0.0

    def per_token_ns(self, largest: int, start_ns: int, end_ns: int) -> float:
        """Median excess per token of steps whose largest prompt was about as large, those that ended between these
        moments left out: a delay must not speak for itself. 0 when there are too few."""
        kept = slice(0, min(self._count, _KEPT))
        sizes, ends = self._largest[kept], self._end_ns[kept]
        alike = (sizes * _ALIKE >= largest) & (sizes <= _ALIKE * largest) & ((ends <= start_ns) | (ends > end_ns))
        return float(np.median(self._per_token[kept][alike])) if int(alike.sum()) >= _FEWEST else 0.0
