"""Latency and prefill time, ours beside the engine's."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from tests.real.truth.cores import DELIVERY_ROLES
from tests.real.truth.said import Said
from tests.real.truth.true_causes import Truth

from prefillwatch.units import NS

WINDOWS = {"10s": 10, "1m": 60}
RANKS = {"p50": 0.5, "p99": 0.99}
#: Figures agree when they differ by no more than one of these.
RELATIVE, ABSOLUTE_SECONDS, POINTS = 0.02, 0.001, 0.005
#: Our quantiles are those of a sketch with this relative error.
SKETCH_LOW, SKETCH_HIGH = 0.99, 1.01
#: A scrape shows windows as they were when they were last worked through, up to a second and a beat before.
_WORKED_AGO_NS = (150_000_000, 650_000_000, 1_150_000_000)
#: Fewer gaps than this have no 99th percentile to speak of.
FEWEST_GAPS = 1000
#: From here on a meter may have seen two tokens at once where another saw them one by one.
HOPELESS = 0.25


class Range(NamedTuple):
    """A quantile of one meter's gaps, and the least and the most that it can be for an allowance of percentile points
    and of when it was taken."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, slots=True)
class Latency:
    """A quantile in a sliding window at `at` seconds by three meters: ours sits between the engine, whose gaps know
    nothing of what its API server and the network did to tokens, and the client, which got them last.

    `waited`: share of the time in which somebody who hands tokens on waited for a core. That many gaps may have been
    stretched, or have become one with the next, and so the ranks of all others moved by as much: `possible` is what
    engine and client saw within these ranks.
    """

    at: float
    window: str
    name: str
    ours: float
    engine: Range
    client: Range
    waited: float
    possible: tuple[float, float]

    @property
    def fits(self) -> bool:
        low, high = self.possible
        explained = low - allowed(low) <= self.ours <= high + allowed(high)
        return self.is_the_engines or explained or self.waited > HOPELESS

    @property
    def is_the_engines(self) -> bool:
        return abs(self.ours - self.engine.middle) <= allowed(self.engine.middle) or (
            SKETCH_LOW * self.engine.low <= self.ours <= SKETCH_HIGH * self.engine.high
        )


def allowed(seconds: float) -> float:
    return max(RELATIVE * seconds, ABSOLUTE_SECONDS)


@dataclass(frozen=True, slots=True)
class Times:
    """Sums over requests in seconds. `reported` is what vLLM says of those that it finished, `finished`; `logged` comes
    from its steps, for all."""

    requests: int
    ours: float
    ours_count: int
    logged: float
    reported: float
    finished: int
    queue_ours: float
    queue_logged: float

    @property
    def error(self) -> float:
        return self.ours / self.logged - 1 if self.logged else 0.0


def latencies(truth: Truth, before: Sequence[Truth], said: Said) -> Iterator[Latency]:
    """At every scrape; `before` are the scenarios that the same sidecar saw before, since they are in its windows."""
    truths = [*before, truth]
    engine = sorted(pair for each in truths for pair in _engine_gaps(each))
    client = sorted(pair for each in truths for pair in _client_gaps(each))
    waits = [(each.header["started_monotonic_ns"], each.cores()) for each in truths]
    offset = truth.header["started_monotonic_ns"]
    for at_ns, page in said.scrapes:
        for window, seconds in WINDOWS.items():
            theirs, clients = (list(_windows(gaps, at_ns, seconds)) for gaps in (engine, client))
            if min(map(len, theirs)) < FEWEST_GAPS:
                continue
            since_ns = max(at_ns - seconds * NS, engine[0][0])
            waited_ns = sum(each.longest_ns(since_ns - o, at_ns - o, DELIVERY_ROLES) for o, each in waits)
            waited = waited_ns / (at_ns - since_ns)
            for name, rank in RANKS.items():
                found = page.matching(f"prefillwatch_inter_token_latency_{name}_seconds", _labels(window))
                if found:
                    yield Latency(
                        at=(at_ns - offset) / NS,
                        window=window,
                        name=name,
                        ours=found[0],
                        engine=_range(theirs, rank, POINTS),
                        client=_range(clients, rank, POINTS),
                        waited=waited,
                        possible=_reach([*theirs, *clients], rank, POINTS + waited),
                    )


def _windows(gaps: list[tuple[int, float]], at_ns: int, seconds: int) -> Iterator[list[float]]:
    """What the window held, in order of size, at each of the times when it may have been worked through."""
    for ago_ns in _WORKED_AGO_NS:
        until_ns = at_ns - ago_ns
        since_ns = (until_ns // NS - seconds + 1) * NS
        yield sorted(gap for _, gap in _between(gaps, since_ns, until_ns))


def _range(windows: list[list[float]], rank: float, points: float) -> Range:
    low, high = _reach(windows, rank, points)
    return Range(low, quantile(windows[0], rank), high)


def _reach(windows: list[list[float]], rank: float, points: float) -> tuple[float, float]:
    filled = [each for each in windows if each]
    return min(quantile(each, rank - points) for each in filled), max(quantile(each, rank + points) for each in filled)


def _engine_gaps(truth: Truth) -> Iterator[tuple[int, float]]:
    offset = truth.header["started_monotonic_ns"]
    for line in truth.kind("iteration"):
        for gap in line.get("itl") or ():
            yield line["at"] + offset, gap


def _client_gaps(truth: Truth) -> Iterator[tuple[int, float]]:
    offset = truth.header["started_monotonic_ns"]
    for reads in truth.seen.reads.values():
        for (before_ns, _), (at_ns, _) in itertools.pairwise(reads):
            yield at_ns + offset, (at_ns - before_ns) / NS


def _labels(window: str) -> dict[str, str]:
    return {"window": window, "population": "all"}


def _between(gaps: list[tuple[int, float]], since_ns: int, until_ns: int) -> list[tuple[int, float]]:
    return gaps[bisect.bisect_left(gaps, (since_ns, 0.0)) : bisect.bisect_right(gaps, (until_ns, 0.0))]


def quantile(ordered: Sequence[float], rank: float) -> float:
    if not ordered:
        return float("nan")
    position = min(max(rank, 0.0), 1.0) * len(ordered)
    return ordered[min(len(ordered) - 1, max(0, int(position + 0.999999) - 1))]


def prefill_times(truth: Truth, said: Said) -> Times:
    answered = {request for request, reads in truth.seen.reads.items() if reads}
    begun: dict[str, int] = {}
    done: dict[str, int] = {}
    for step in truth.seen.steps:
        for request in step.prefill:
            begun.setdefault(request, step.start_ns)
            done[request] = step.end_ns
    finished = [each for line in truth.kind("iteration") for each in line.get("finished") or () if each[0] in answered]
    return Times(
        requests=len(answered),
        ours=said.gained.total("prefillwatch_prefill_seconds_sum"),
        ours_count=round(said.gained.total("prefillwatch_prefill_seconds_count")),
        logged=sum(done[request] - begun[request] for request in answered) / 1e9,
        reported=sum(each[2] for each in finished),
        finished=len(finished),
        queue_ours=said.gained.total("prefillwatch_queue_seconds_sum"),
        queue_logged=sum(begun[request] - truth.seen.prompts[request][0] for request in answered) / 1e9,
    )


def prefill_error(times: Iterable[Times]) -> float:
    """Of the sums over scenarios, ours over the engine's steps."""
    found = list(times)
    return sum(each.ours for each in found) / sum(each.logged for each in found) - 1


def as_json(found: Iterable[Latency]) -> list[dict[str, object]]:
    return [asdict(each) | {"is_the_engines": each.is_the_engines, "fits": each.fits} for each in found]
