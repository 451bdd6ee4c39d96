"""What OTLP costs the observer: per token while it is on, and per state that is sent. One run, both sides in turns.

python -m tests.bench.otlp
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from tests.bench.observer import Feeder, steps

from prefillwatch.observer.otlp.items import MetricsNow, Origin
from prefillwatch.observer.otlp.metric_data import metric_data
from prefillwatch.observer.otlp.resource import resource_of
from prefillwatch.settings.declared import DEFAULTS
from prefillwatch.units import NS

ROUNDS = 5
SECONDS = 1.0  # of CPU time for each side and round
INTERVAL_NS = int(DEFAULTS.otlp_interval * NS)
ORIGIN = Origin("0", "bench", 1, "127.0.0.1", 8000)


@dataclass
class Pushing(Feeder):
    """With what the loop does when OTLP is on: exponential buckets, and a state of all metrics every so often."""

    exponential: bool = True
    push_due: int = INTERVAL_NS

    def beat(self) -> None:
        super().beat()
        if self.now >= self.push_due:
            self.push_due = self.now + INTERVAL_NS
            self.state()

    def state(self) -> MetricsNow:
        assert self.observation.standard is not None
        snapshot = self.observation.snapshot(exponential=True)
        return MetricsNow(self.now, snapshot, self.observation.standard.copy(), "vllm")


def main() -> None:
    off: list[float] = []
    on: list[float] = []
    feeder = Pushing()
    for _ in range(ROUNDS):
        off.append(ns_per_token(Feeder()))
        feeder = Pushing()
        on.append(ns_per_token(feeder))
    ratios = [there / here for here, there in zip(off, on, strict=True)]
    print(f"ns per token: off {statistics.median(off):.0f}, on {statistics.median(on):.0f}")
    print(f"on / off: median {statistics.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")
    state = feeder.state()
    copying = cpu_ms(feeder.state)
    making = cpu_ms(lambda: encoded(state))
    points = sum(family.label_sets for family in state.snapshot)
    print(f"one state: {points} data points, {len(encoded(state)):,} bytes; CPU {copying:.1f} ms in the loop", end=", ")
    print(f"{making:.1f} ms in the thread that sends")


def ns_per_token(feeder: Feeder) -> float:
    for record in steps():
        feeder.take(record)
        if feeder.cpu_ns > SECONDS * NS:
            break
    feeder.check()
    return feeder.cpu_ns / feeder.tokens


def encoded(state: MetricsNow) -> bytes:
    data: bytes = encode_metrics(metric_data(state, ORIGIN, resource_of(ORIGIN))).SerializeToString()
    return data


def cpu_ms(work: Callable[[], object]) -> float:
    times = []
    for _ in range(9):
        before = time.thread_time_ns()
        work()
        times.append((time.thread_time_ns() - before) / 1e6)
    return statistics.median(times)


if __name__ == "__main__":
    main()
