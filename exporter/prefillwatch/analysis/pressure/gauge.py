"""From facts to the two pressures of a model: sums that are forgotten with a time constant, so that nothing jumps.

Every sum decays with the time, whether anything happens or not: a rate is a sum of events over the decayed sum of the
time itself, right from the start. An idle server so comes down to 0 within minutes and stays there; nothing is said
before the first requests were served.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from prefillwatch.analysis.arrays import FloatArray
from prefillwatch.analysis.pressure.formula import Capacity, Interference, Load, Prompts, Riding, capacity, interference
from prefillwatch.analysis.settings import Slo
from prefillwatch.analysis.tuning import DEFAULT, PressureRules
from prefillwatch.units import NS

#: Ratios are kept by buckets that are so much wider each; means within a bucket are exact, only its order is lost.
_WIDER: Final = 1.05
_LOWEST: Final = 0.01
_BUCKETS: Final = 240
#: Weight, among the steps seen, of what is assumed of an empty batch while all batches are of one size: that a step is
#: as long as its batch is large, but for small batches, of up to about so many streams more than one.
_PRIOR: Final = 0.01
_SMALL: Final = 8.0
#: Fewer steps than this have been forgotten; what is left of them is rounding.
_FORGOTTEN: Final = 1e-6


class StepShare(NamedTuple):
    """An engine step. Times in seconds."""

    took_s: float
    #: What it would have taken without a prompt.
    clear_s: float
    #: Streams that decoded in it.
    decoders: int
    #: Uncached prompt tokens in it.
    tokens: int = 0
    #: What its prompts can explain beyond a clear step, at most; what is longer had another cause.
    explained_s: float = math.inf
    #: Prompt tokens that it could have taken; 0: not known.
    room: int = 0


@dataclass(slots=True)
class _Sums:
    """Forgotten with the time constant of ``capacity``."""

    time_s: float = 0.0
    decoding_s: float = 0.0
    reading_s: float = 0.0
    gaps: float = 0.0
    gaps_s: float = 0.0
    waiting_s: float = 0.0
    requests: float = 0.0
    prefills_s: float = 0.0
    allowances_s: float = 0.0
    promises_s: float = 0.0
    tokens: float = 0.0
    uncached: float = 0.0

    def forget(self, kept: float) -> None:
        self.time_s *= kept
        self.decoding_s *= kept
        self.reading_s *= kept
        self.gaps *= kept
        self.gaps_s *= kept
        self.waiting_s *= kept
        self.requests *= kept
        self.prefills_s *= kept
        self.allowances_s *= kept
        self.promises_s *= kept
        self.tokens *= kept
        self.uncached *= kept


@dataclass(slots=True)
class _Batches:
    """Sums over clear steps, for a straight line through them by the streams beyond the first."""

    steps: float = 0.0
    more: float = 0.0
    squares: float = 0.0
    seconds: float = 0.0
    products: float = 0.0

    def add(self, more: int, seconds: float) -> None:
        self.steps += 1
        self.more += more
        self.squares += more * more
        self.seconds += seconds
        self.products += more * seconds

    def forget(self, kept: float) -> None:
        self.steps *= kept
        self.more *= kept
        self.squares *= kept
        self.seconds *= kept
        self.products *= kept

    @property
    def empty_step_s(self) -> float:
        """The line at one stream. What is not seen is assumed."""
        if self.steps < _FORGOTTEN:
            return 0.0
        squares = self.squares + _PRIOR * _SMALL**2 * self.steps
        determinant = (1 + _PRIOR) * self.steps * squares - self.more**2
        empty_s = (self.seconds * squares - self.more * self.products) / determinant
        return min(max(empty_s, 0.0), self.seconds / self.steps)


class PressureGauge:
    """Of one model. Feed it what happened, then `advance` several times a second."""

    def __init__(self, slo: Slo, rules: PressureRules = DEFAULT.pressure) -> None:
        self._slo = slo
        self._rules = rules
        self._now_ns: int | None = None
        self._seen = 0
        self._sums = _Sums()
        self._waiting = 0.0
        """Requests without a first token, each by the part of its wait that is not due to one longer prompt."""
        # With the time constant of interference.
        self._batches = _Batches()
        self._all_gaps = 0.0
        self._ratios: FloatArray = np.zeros((2, _BUCKETS))
        """Of the gaps with a prompt in them, by bucket: how many, and the sum of their ratios."""
        self._held_up = 0.0
        self._held_up_of = 0.0

    # --- What happened ---

    def sent(self, held_up: float = 0.0) -> None:
        """A request waits for its first token. ``held_up`` is the part of its wait that one longer prompt makes."""
        self._waiting += 1 - held_up

    def not_waiting(self, held_up: float = 0.0) -> None:
        """One that was sent with this has its first token, or is gone."""
        self._waiting -= 1 - held_up

    def served(
        self,
        queue_s: float,
        reading_s: float,
        promise_s: float,
        held_up: float = 0.0,
        *,
        tokens: int = 0,
        uncached: int = 0,
    ) -> None:
        """A request got its first token: how long it waited, and was read; what it was promised; its prompt."""
        allowance_s = max(promise_s - reading_s, self._rules.least_allowance * promise_s)
        self._seen += 1
        sums = self._sums
        sums.requests += 1
        sums.prefills_s += reading_s
        sums.allowances_s += allowance_s
        sums.promises_s += promise_s
        sums.tokens += tokens
        sums.uncached += uncached
        self._held_up += held_up * queue_s / allowance_s
        self._held_up_of += 1

    def step(self, step: StepShare) -> None:
        """A final step. What it took beyond what its prompts explain is left out: a pause is no load."""
        clear_s = step.clear_s or step.took_s
        took_s = min(step.took_s, clear_s + step.explained_s) if step.tokens else clear_s
        excess_s = max(0.0, took_s - clear_s)
        sums = self._sums
        if step.tokens:
            full = min(1.0, step.tokens / step.room) if step.room else 1.0
            sums.reading_s += excess_s + full * min(clear_s, took_s)
        streams = step.decoders
        if not streams:
            return
        sums.decoding_s += took_s
        sums.gaps += streams
        sums.gaps_s += streams * took_s
        self._batches.add(streams - 1, clear_s)
        self._all_gaps += streams
        if excess_s:
            promise_s = self._slo.itl
            ratio = excess_s / max(promise_s - clear_s, self._rules.least_room * promise_s)
            bucket = math.ceil(math.log(max(ratio, _LOWEST) / _LOWEST) / math.log(_WIDER))
            self._ratios[:, min(bucket, _BUCKETS - 1)] += (streams, streams * ratio)

    def advance(self, now_ns: int) -> None:
        """Time passes, and what was is forgotten bit by bit."""
        if self._now_ns is None:
            self._now_ns = now_ns
            return
        passed_s = (now_ns - self._now_ns) / NS
        if passed_s <= 0:
            return
        self._now_ns = now_ns
        sums = self._sums
        sums.forget(math.exp(-passed_s / self._rules.capacity_s))
        sums.time_s += passed_s
        sums.waiting_s += passed_s * max(0.0, self._waiting)
        kept = math.exp(-passed_s / self._rules.interference_s)
        self._batches.forget(kept)
        self._ratios *= kept
        self._all_gaps *= kept
        self._held_up *= kept
        self._held_up_of *= kept

    # --- What comes of it ---

    @property
    def load(self) -> Load:
        """By now."""
        sums = self._sums
        time_s, requests = sums.time_s, sums.requests
        if not time_s:
            return Load()
        any_requests = requests > _FORGOTTEN
        read_at_once = sums.prefills_s / time_s
        return Load(
            step_s=sums.gaps_s / sums.gaps if sums.gaps else 0.0,
            empty_step_s=self._batches.empty_step_s,
            decoding=min(1.0, sums.decoding_s / time_s),
            reading=sums.reading_s / time_s,
            reading_s=sums.prefills_s / requests if any_requests else 0.0,
            allowance_s=sums.allowances_s / requests if any_requests else 0.0,
            waiting=max(0.0, sums.waiting_s / time_s - read_at_once),
            served_per_s=requests / time_s,
        )

    @property
    def prompts(self) -> Prompts:
        """By now."""
        sums = self._sums
        if sums.requests < _FORGOTTEN:
            return Prompts()
        return Prompts(sums.tokens / sums.requests, sums.uncached / sums.requests, sums.promises_s / sums.requests)

    @property
    def riding(self) -> Riding:
        """By now."""
        worst = max(self._rules.worst_gaps * self._all_gaps, self._rules.fewest_worst)
        held_up = self._held_up / max(self._held_up_of, 1.0)
        return Riding(worst_gaps=self._mean_of_largest(worst), held_up=held_up)

    def _mean_of_largest(self, count: float) -> float:
        """Where fewer than ``count`` gaps had a prompt in them, the others are 0."""
        counts, totals = self._ratios[:, ::-1]
        before = np.cumsum(counts) - counts
        part = np.clip((count - before) / np.maximum(counts, 1e-300), 0.0, 1.0)
        return float((part * totals).sum() / count)

    @property
    def capacity(self) -> Capacity | None:
        """None: too little has been seen of the server yet."""
        return capacity(self.load, self._slo, self._rules) if self._known else None

    @property
    def interference(self) -> Interference | None:
        """None: too little has been seen of the server yet."""
        return interference(self.riding, self._rules) if self._known else None

    @property
    def _known(self) -> bool:
        return self._seen >= self._rules.fewest_requests
