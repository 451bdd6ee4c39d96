"""The laws that are compared: what each looks at, and how many replicas it wishes for."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Protocol

from tests.autoscaling.control import Behavior, Limits, averaged
from tests.autoscaling.fleet import Fleet, Replica

from prefillwatch.export import table
from prefillwatch.export.spec import Spec

S: Final = 1000.0  # milliseconds

#: Where nobody says anything else.
KUBERNETES: Final = Behavior()
#: Of llm-d's guide.
GUIDE: Final = Behavior(
    up=Limits(share=1.0, replicas=4, period=60.0, window=30.0),
    down=Limits(share=0.0, replicas=1, period=120.0, window=180.0),
)

#: Up at once, since the signal is smooth; down as slowly as the guide.
OURS: Final = Behavior(down=GUIDE.down)


@dataclass(frozen=True)
class Promise:
    """Milliseconds; what the settings of the product have where nobody says anything else."""

    ttft: float = 2500.0
    tpot: float = 100.0
    gap: float = 200.0


class Law(Protocol):
    name: ClassVar[str]
    #: Whether it needs what we export.
    watched: ClassVar[bool]

    @property
    def behavior(self) -> Behavior: ...

    def wish(self, fleet: Fleet, promise: Promise) -> int:
        """Asked at each look of the autoscaler."""


@dataclass
class Fixed:
    """Nobody scales."""

    replicas: int
    name: ClassVar[str] = "fixed"
    watched: ClassVar[bool] = False

    @property
    def behavior(self) -> Behavior:
        return Behavior(fewest=self.replicas, most=self.replicas)

    def wish(self, fleet: Fleet, promise: Promise) -> int:
        return self.replicas


@dataclass
class QueueLength:
    """`vllm:num_requests_waiting` with KEDA, as vLLM's production stack documents it: threshold 5, every 15 s, and what
    Kubernetes does where nobody says anything else. The total over all replicas, as KEDA divides by the threshold."""

    threshold: float = 5.0
    behavior: Behavior = KUBERNETES
    name: ClassVar[str] = "queue length"
    watched: ClassVar[bool] = False

    def wish(self, fleet: Fleet, promise: Promise) -> int:
        waiting = sum(each.waiting for each in fleet.ready)
        return averaged(len(fleet.provisioned), waiting, self.threshold)


@dataclass
class LatencyOverPromise:
    """llm-d's guide to autoscaling on latency objectives: max(P90 TTFT / promise, P90 TPOT / promise) over a minute,
    clamped, averaged over 45 s, with a band of thresholds and a credit for replicas that are still loading. The
    quantiles are exact here, where the guide has buckets; they are of what was measured, not predicted."""

    clamp: float = 2.0
    window: float = 60.0 * S
    smoothing: float = 45.0 * S
    up: float = 0.55
    down: float = 0.40
    behavior: Behavior = GUIDE
    name: ClassVar[str] = "latency over promise"
    watched: ClassVar[bool] = False
    _signal: deque[tuple[float, float]] = field(default_factory=deque)

    def wish(self, fleet: Fleet, promise: Promise) -> int:
        since = fleet.now - self.window
        raw = max(
            _p90(_since(fleet.first_tokens, since)) / promise.ttft, _p90(_since(fleet.answers, since)) / promise.tpot
        )
        self._signal.append((fleet.now, min(raw, self.clamp)))
        while self._signal[0][0] <= fleet.now - self.smoothing:
            self._signal.popleft()
        signal = sum(each for _, each in self._signal) / len(self._signal)
        replicas, ready = len(fleet.provisioned), len(fleet.ready)
        wish = replicas
        if signal > self.up:
            wish += math.ceil(replicas * (signal * ready / replicas / self.up - 1.0))
        elif signal < self.down:
            wish -= math.floor(replicas * (1.0 - signal / self.down))
        return averaged(replicas, wish, 1.0)


@dataclass
class CapacityPressure:
    """`prefillwatch_capacity_pressure_ratio`, added up over the replicas: how many there should be, were each to be as
    full as the promises allow. Of those that are loading nothing is known, and nothing is added for them."""

    target: float = 0.5
    behavior: Behavior = OURS
    name: ClassVar[str] = "capacity pressure"
    watched: ClassVar[bool] = True

    def wish(self, fleet: Fleet, promise: Promise) -> int:
        total = sum(exported(each, table.CAPACITY_PRESSURE) or 0.0 for each in fleet.ready)
        return averaged(len(fleet.provisioned), total, self.target)


def exported(replica: Replica, gauge: Spec) -> float | None:
    """What is on the page beside this engine; None: nothing."""
    assert replica.beside is not None
    values = replica.beside.observed.values(gauge)
    return next(iter(values.values()), None)


def _since(events: Sequence[tuple[float, float]], since: float) -> list[float]:
    at = bisect_left(events, since, key=lambda event: event[0])
    return [each for _, each in events[at:]]


def _p90(values: list[float]) -> float:
    """0 where there is none: an idle fleet has no latency."""
    return sorted(values)[min(int(0.9 * len(values)), len(values) - 1)] if values else 0.0
