"""How Kubernetes turns a signal into replicas: the law of its horizontal autoscaler, and the limits that it puts on it.

Written from the documentation of the HorizontalPodAutoscaler and of KEDA, which hands its triggers to one. Times are
seconds from the start of a run.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

#: Seconds between two looks of the controller (`--horizontal-pod-autoscaler-sync-period`).
SYNC_EVERY: Final = 15.0
#: A signal so near to its target changes nothing (`--horizontal-pod-autoscaler-tolerance`).
TOLERANCE: Final = 0.1


@dataclass(frozen=True)
class Limits:
    """In one direction: the larger of a share and a number of replicas in a period, after so long in which nothing
    spoke against it."""

    share: float
    replicas: int
    period: float
    window: float

    def most(self, before: int) -> int:
        return max(math.ceil(before * self.share), self.replicas)


@dataclass(frozen=True)
class Behavior:
    """The `behavior` of an autoscaler; the defaults are those of Kubernetes."""

    up: Limits = Limits(share=1.0, replicas=4, period=15.0, window=0.0)
    down: Limits = Limits(share=1.0, replicas=0, period=15.0, window=300.0)
    fewest: int = 2
    most: int = 8


def proportional(replicas: int, value: float, target: float) -> int:
    """So many times as many as the signal is of its target, for signals that are one value for all."""
    return replicas if abs(value / target - 1.0) <= TOLERANCE else math.ceil(replicas * value / target)


def averaged(replicas: int, total: float, target: float) -> int:
    """As many as the signal's total has targets in it: how KEDA's triggers are read, which are of type AverageValue."""
    return replicas if abs(total / (target * replicas) - 1.0) <= TOLERANCE else math.ceil(total / target)


@dataclass
class Autoscaler:
    """Wishes go in, replicas come out."""

    behavior: Behavior
    _wished: deque[tuple[float, int]] = field(default_factory=deque)
    _added: deque[tuple[float, int]] = field(default_factory=deque)
    _removed: deque[tuple[float, int]] = field(default_factory=deque)

    def decide(self, now: float, replicas: int, wish: int) -> int:
        up, down = self.behavior.up, self.behavior.down
        self._wished.append((now, wish))
        _forget(self._wished, now - max(up.window, down.window))
        least = min(each for at, each in self._wished if at >= now - up.window)
        most = max(each for at, each in self._wished if at >= now - down.window)
        steady = min(max(replicas, least), most)
        steady = min(max(steady, self.behavior.fewest), self.behavior.most)
        if steady > replicas:
            added = _forget(self._added, now - up.period)
            before = replicas - added
            steady = max(min(steady, before + up.most(before)), replicas)
            self._added.append((now, steady - replicas))
        elif steady < replicas:
            removed = _forget(self._removed, now - down.period)
            before = replicas + removed
            steady = min(max(steady, before - down.most(before)), replicas)
            self._removed.append((now, replicas - steady))
        return steady


def _forget(events: deque[tuple[float, int]], until: float) -> int:
    """What is over by then; the sum of the rest."""
    while events and events[0][0] < until:
        events.popleft()
    return sum(each for _, each in events)
