"""How long a step takes that carries no prompt: the yardstick every other step is held against."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

SAMPLES = 64
"""Recent steps kept per level of concurrency; few enough to follow a growing context within seconds."""

ENOUGH = 8
"""Steps from which on a median is believed."""

STANDARD_DEVIATIONS = 5.0
"""A step counts as long when it is so many standard deviations (by the median absolute deviation) over a clear one …"""

LEAST_RISE = 0.15
"""… and at least so much of a clear step, since a batch grows harmlessly by as much."""

MAD_TO_SIGMA = 1.4826


class ClearStep:
    """Running median of the steps without a prompt, and how much they scatter.

    A step grows with the number of streams in it, so there is a median for every power of two of them. Where requests
    wait all the time and no step is known to be clear, the lower quartile of all steps stands in.
    """

    __slots__ = ("_cached", "_clear", "_mixed", "_since")

    def __init__(self) -> None:
        self._clear: dict[int, deque[int]] = {}
        self._mixed: deque[int] = deque(maxlen=4 * SAMPLES)
        self._cached: dict[int, tuple[int, int]] = {}
        self._since = 0

    def observe(self, duration_ns: int, streams: int, *, waiting: bool) -> None:
        """Learn from a step. ``waiting``: somebody had no first token yet, so the step may have carried a prompt."""
        if waiting:
            self._mixed.append(duration_ns)
        else:
            self._clear.setdefault(streams.bit_length(), deque(maxlen=SAMPLES)).append(duration_ns)
        self._since += 1
        if self._since >= ENOUGH:
            self._since = 0
            self._cached.clear()

    def samples(self) -> list[tuple[int, int, bool]]:
        """(duration, streams, waiting) of all steps kept, as `observe` would take them; of streams about as many."""
        clear = [(each, (1 << level) - 1, False) for level, kept in self._clear.items() for each in kept]
        return clear + [(each, 0, True) for each in self._mixed]

    def expect_ns(self, streams: int = 0) -> int:
        """Duration of a clear step with so many streams; 0 while nothing is known."""
        return self._known(streams)[0]

    def long_ns(self, streams: int = 0) -> int:
        """Duration from which on a step carries more than decoding; 0 while nothing is known."""
        return self._known(streams)[1]

    def _known(self, streams: int) -> tuple[int, int]:
        level = streams.bit_length()
        known = self._cached.get(level)
        if known is None:
            known = self._compute(level)
            if known[0]:
                self._cached[level] = known
        return known

    def _compute(self, level: int) -> tuple[int, int]:
        samples = self._nearest(level)
        if samples is not None:
            return limits(samples)
        everything = np.fromiter(chain(self._mixed, *self._clear.values()), np.int64)
        if len(everything) < ENOUGH:
            return 0, 0
        return limits(everything[everything <= 2 * np.quantile(everything, 0.25)].tolist())

    def _nearest(self, level: int) -> deque[int] | None:
        """Samples of the level closest to the one asked for; the higher of two, as it has the more streams."""
        believed = [each for each, samples in self._clear.items() if len(samples) >= ENOUGH]
        if not believed:
            return None
        return self._clear[min(believed, key=lambda each: (abs(each - level), -each))]


def limits(durations: Iterable[int]) -> tuple[int, int]:
    """Median of clear steps and the duration from which on a step is no longer one of them."""
    durations = sorted(durations)
    median = _middle(durations)
    sigma = MAD_TO_SIGMA * _middle(sorted(abs(each - median) for each in durations))
    return round(median), round(median + max(LEAST_RISE * median, STANDARD_DEVIATIONS * sigma))


def _middle(ordered: Sequence[float]) -> float:
    """Their median. So few values are sorted in a tenth of the time that numpy takes."""
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
