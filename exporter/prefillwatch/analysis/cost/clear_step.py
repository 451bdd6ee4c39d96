"""How long a step takes that carries no prompt: the yardstick every other step is held against."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import Final

from prefillwatch.analysis.tuning import DEFAULT, ClearSteps

#: Turns a median absolute deviation into a standard deviation.
MAD_TO_SIGMA: Final = 1.4826


class _Kept:
    """The last durations, in order of time and in order of size: where prompts wait all the time, what a clear step
    takes is asked for hundreds of times a second."""

    __slots__ = ("latest", "ordered")

    def __init__(self, most: int) -> None:
        self.latest: deque[int] = deque(maxlen=most)
        self.ordered: list[int] = []

    def add(self, duration_ns: int) -> None:
        if len(self.latest) == self.latest.maxlen:
            del self.ordered[bisect_left(self.ordered, self.latest[0])]
        self.latest.append(duration_ns)
        insort(self.ordered, duration_ns)


class ClearStep:
    """Running median of the steps without a prompt, and how much they scatter.

    A step grows with the number of streams in it, so there is a median for every power of two of them. Where requests
    wait all the time and no step is known to be clear, the lower quartile of all steps stands in.

    Example: after 64 clear steps of 19 to 21 ms with 6 streams, a clear step takes 20 ms, and one counts as long from
    23 ms on: 15 % more, or five standard deviations where that is more.
    """

    __slots__ = ("_cached", "_clear", "_mixed", "_rules", "_since")

    def __init__(self, rules: ClearSteps = DEFAULT.clear_steps) -> None:
        self._rules = rules
        self._clear: dict[int, _Kept] = {}
        self._mixed = _Kept(4 * rules.kept)
        self._cached: dict[int, tuple[int, int]] = {}
        self._since = 0

    def observe(self, duration_ns: int, streams: int, *, waiting: bool) -> None:
        """Learn from a step. ``waiting``: a request had no first token yet, so the step may have carried its prompt."""
        if waiting:
            self._mixed.add(duration_ns)
        else:
            level = streams.bit_length()
            if level not in self._clear:
                self._clear[level] = _Kept(self._rules.kept)
            self._clear[level].add(duration_ns)
        self._since += 1
        if self._since >= self._rules.enough:
            self._since = 0
            self._cached.clear()

    def samples(self) -> list[tuple[int, int, bool]]:
        """(duration, streams, waiting) of all steps kept, as `observe` would take them; of streams about as many."""
        clear = [(each, (1 << level) - 1, False) for level, kept in self._clear.items() for each in kept.latest]
        return clear + [(each, 0, True) for each in self._mixed.latest]

    def expect_ns(self, streams: int = 0) -> int:
        """Duration of a clear step with so many streams; 0 while nothing is known."""
        return self._known(streams)[0]

    def known_ns(self, streams: int) -> int:
        """The same where steps with about so many streams were seen; 0 where they were not."""
        kept = self._clear.get(streams.bit_length())
        return self.expect_ns(streams) if kept is not None and len(kept.ordered) >= self._rules.enough else 0

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
            return self._limits(samples)
        everything = sorted(chain(self._mixed.ordered, *(kept.ordered for kept in self._clear.values())))
        if len(everything) < self._rules.enough:
            return 0, 0
        quick_ns = self._rules.quick_spread * _quantile(everything, self._rules.quick_quantile)
        return self._limits(everything[: bisect_right(everything, quick_ns)])

    def _nearest(self, level: int) -> list[int] | None:
        """Samples of the level closest to the one asked for; the higher of two, as it has the more streams."""
        believed = [each for each, kept in self._clear.items() if len(kept.ordered) >= self._rules.enough]
        if not believed:
            return None
        return self._clear[min(believed, key=lambda each: (abs(each - level), -each))].ordered

    def _limits(self, durations: Sequence[int]) -> tuple[int, int]:
        """Median of clear steps, which are in order of size, and the duration from which on a step is no longer one of
        them."""
        median = _middle(durations)
        # Falling up to the median and rising from there on, which sorting takes as it is.
        sigma = MAD_TO_SIGMA * _middle(sorted([abs(each - median) for each in durations]))
        rise = max(self._rules.least_rise * median, self._rules.standard_deviations * sigma)
        return round(median), round(median + rise)


def _middle(ordered: Sequence[float]) -> float:
    """Their median. So few values are sorted in a tenth of the time that numpy takes."""
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _quantile(ordered: Sequence[float], q: float) -> float:
    """Between the two values nearest to that rank, in proportion."""
    place = q * (len(ordered) - 1)
    below = int(place)
    return ordered[below] + (place - below) * (ordered[min(below + 1, len(ordered) - 1)] - ordered[below])
