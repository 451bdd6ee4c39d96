"""Which engine a stream is on, read off how it moves: the streams of one engine read within a millisecond or two of
each other, step by step; those of another are near them only by chance, and never while one of the two reads a prompt.

A score per stream and engine says how much likelier its reads of late are if it is on that engine than if it is on
none of those known: the logarithm of the odds. A read counts as near when at least half of the engine's other streams
read within `EngineRules.near_ns`; what chance makes of it is the part of the time that is so near to any of their
reads. Neighbouring reads tell the same story twice, so each counts half, and old ones fade.

Example: an engine has three streams that read every 20 ms. Reads of a fourth fall within 3 ms of theirs: by chance 30 %
would, so each speaks for it with half of log(0.95 / 0.3), 0.6; after six of them it is thirty times as likely that it
is on that engine. Then the three are silent for 300 ms and the fourth reads on: each of its reads speaks against it
with half of log(0.05 / 0.95), 1.5, and three of them outweigh the six.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from prefillwatch.analysis.arrays import FloatArray, IntArray
from prefillwatch.analysis.tuning import DEFAULT, EngineRules


class CoMovement:
    """Scores of streams, by slot, for engines. ``on`` tells who is on which engine: its number by slot, or negative."""

    def __init__(self, rules: EngineRules = DEFAULT.engines) -> None:
        self._rules = rules
        self._scores: FloatArray = np.zeros((64, 4))
        self._none: FloatArray = np.zeros((64, 1))  # what the scores are held against
        self._reads: list[tuple[IntArray, IntArray]] = []
        self.weighed_ns = 0
        """Reads up to this moment count."""

    def begin(self, slot: int) -> None:
        """Another stream has the slot."""
        while slot >= len(self._scores):
            self._scores = np.concatenate((self._scores, np.zeros_like(self._scores)))
            self._none = np.concatenate((self._none, np.zeros_like(self._none)))
        self._scores[slot] = self._none[slot] = 0.0

    def scores(self, slot: int) -> FloatArray:
        """By engine."""
        scores: FloatArray = self._scores[slot] - self._none[slot]
        return scores

    def reads(self, slots: npt.NDArray[np.integer], times_ns: IntArray) -> None:
        """Reads in order of time, none of them before what was weighed."""
        self._reads.append((slots.astype(np.int64), times_ns))

    def weigh(self, until_ns: int, on: IntArray, engines: int) -> None:
        """Let the reads up to a moment count. Those up to `near_ns` after it must have been told, too."""
        if not self._reads or until_ns <= self.weighed_ns:
            return
        slots = np.concatenate([each for each, _ in self._reads])
        times_ns = np.concatenate([each for _, each in self._reads])
        order = np.argsort(times_ns, kind="stable")
        slots, times_ns = slots[order], times_ns[order]
        near_ns = self._rules.near_ns
        later = int(times_ns.searchsorted(until_ns - near_ns, "right"))
        self._reads = [(slots[later:], times_ns[later:])]
        first = int(times_ns.searchsorted(self.weighed_ns, "right"))
        last = int(times_ns.searchsorted(until_ns, "right"))
        since_ns, self.weighed_ns = self.weighed_ns, until_ns
        if first == last:
            return
        while engines > self._scores.shape[1]:
            self._scores = np.concatenate((self._scores, np.zeros_like(self._scores)), axis=1)
        new, new_ns = slots[first:last], times_ns[first:last]
        counts = np.bincount(new, minlength=len(self._scores))[: len(self._scores), None]
        self._scores *= self._rules.fades**counts
        self._none *= self._rules.fades**counts
        span_ns = max(until_ns - max(since_ns, int(times_ns[0])), 1)
        for engine in range(engines):
            self._weigh_for(engine, on, new, new_ns, times_ns[on[slots] == engine], span_ns)
        # Where two engines are in step for a while, what was known before is not lost.
        beyond = np.maximum(self._scores.max(axis=1, keepdims=True) - self._rules.most_sure, 0.0)
        self._scores = np.maximum(self._scores - beyond, -self._rules.most_sure)
        self._none = np.maximum(self._none - beyond, -self._rules.most_sure)

    def _weigh_for(
        self, engine: int, on: IntArray, slots: IntArray, times_ns: IntArray, its_ns: IntArray, span_ns: int
    ) -> None:
        streams = int(np.count_nonzero(on == engine))
        mine = (on[slots] == engine).astype(np.int64)
        others = streams - mine
        near_ns = self._rules.near_ns
        near = its_ns.searchsorted(times_ns + near_ns, "right") - its_ns.searchsorted(times_ns - near_ns) - mine
        covered_ns = int(np.minimum(np.diff(its_ns), 2 * near_ns).sum()) + 2 * near_ns * bool(len(its_ns))
        chance = min(max(covered_ns / span_ns, 0.05), 0.9)
        missed = self._rules.missed
        speaks = np.where(2 * near >= others, np.log((1 - missed) / chance), np.log(missed / (1 - chance)))
        told = others > 0
        np.add.at(self._scores[:, engine], slots[told], self._rules.weight * speaks[told])
