"""What the engine's prompts cost and how many tokens fit in a step, learned from busy times.

A busy time is a run of long steps between clear ones. The cost is all the excess time of such a run over all the
uncached tokens of its prompts: learned from single prompts it would fall to nothing, since prompts whose first tokens
coincide get almost no service of their own. Per run the longest steps show the budget.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from prefillwatch.analysis.packing import Beat, Engine, Prompt

RUNS = 64
"""Busy times kept."""

FEWEST_TOKENS = 64
"""A run with fewer prompt tokens says more about the noise than about the cost."""

SMALL_REST = 0.1
"""A last chunk may be so small a part of a full step that its step does not count as long."""

NEAR = 0.25
"""A budget this close to a power of two is taken for it."""


@dataclass(slots=True, eq=False)
class Run:
    """A finished busy time: its prompts, and the excess time and decoders of its long steps."""

    prompts: list[Prompt]
    excess_ns: list[int]
    decoders: list[int]

    @property
    def tokens(self) -> int:
        return sum(prompt.uncached for prompt in self.prompts)

    @property
    def cost_ns(self) -> float:
        """Nanoseconds per uncached prompt token."""
        return sum(self.excess_ns) / max(1, self.tokens)

    def fullest(self) -> int:
        """Tokens in the longest step, by its share of the time, decoders included."""
        longest = max(range(len(self.excess_ns)), key=self.excess_ns.__getitem__)
        return round(self.excess_ns[longest] / self.cost_ns) + self.decoders[longest]


class Learner:
    """Learns cost and budget from the last busy times. A median, so that one pause of the engine does not matter."""

    __slots__ = ("_dirty", "_engine", "_runs")

    def __init__(self) -> None:
        self._runs: deque[Run] = deque(maxlen=RUNS)
        self._engine = Engine()
        self._dirty = False

    @property
    def engine(self) -> Engine:
        if self._dirty:
            self._dirty = False
            self._engine = self._learn()
        return self._engine

    def resized(self) -> None:
        """The size of a prompt was corrected."""
        self._dirty = True

    def add(self, prompts: list[Prompt], beats: list[Beat]) -> None:
        """Take in a finished busy time."""
        long = [beat for beat in beats if beat.long]
        run = Run(prompts, [beat.excess_ns for beat in long], [beat.decoders for beat in long])
        if long and run.tokens >= FEWEST_TOKENS:
            self._runs.append(run)
            self._dirty = True

    def _learn(self) -> Engine:
        runs = [run for run in self._runs if run.tokens >= FEWEST_TOKENS]
        if not runs:
            return Engine()
        cost_ns = weighted_median([(run.cost_ns, run.tokens) for run in runs])
        usual = [run for run in runs if cost_ns / 2 < run.cost_ns < 2 * cost_ns]
        chunked = any(len(run.excess_ns) > len(run.prompts) for run in usual)
        return Engine(self._budget(usual), cost_ns, chunked or not usual)

    def _budget(self, runs: list[Run]) -> int:
        """The largest step of the last runs, snapped to a power of two where one is near."""
        most = max((run.fullest() for run in runs), default=0)
        at_least = max((run.tokens // len(run.excess_ns) for run in runs), default=0)
        power = snapped(most)
        return power if power >= (1 - SMALL_REST) * at_least else max(most, at_least)


def snapped(tokens: int) -> int:
    """The power of two next to a number of tokens, or the number itself."""
    if tokens <= 0:
        return 0
    below = 1 << (tokens.bit_length() - 1)
    nearest = min((below, 2 * below), key=lambda power: abs(power - tokens) / power)
    return nearest if abs(nearest - tokens) <= NEAR * nearest else tokens


def weighted_median(pairs: list[tuple[float, int]]) -> float:
    """Value at which half of all weight is reached."""
    half = sum(weight for _, weight in pairs) / 2
    for value, weight in sorted(pairs):
        half -= weight
        if half <= 0:
            return value
    return 0.0
