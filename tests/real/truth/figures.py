"""Latency and prefill time, ours beside the engine's."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from tests.real.truth.cores import DELIVERY_ROLES
from tests.real.truth.said import Said
from tests.real.truth.true_causes import Truth

SECOND = 1_000_000_000
WINDOWS = {"10s": 10, "1m": 60}
RANKS = {"p50": 0.5, "p99": 0.99}
#: Figures agree when they differ by no more than one of these.
RELATIVE, ABSOLUTE_SECONDS, POINTS = 0.02, 0.001, 0.005
#: Our newest gaps are worked in within this.
_BEAT_NS = 150_000_000
#: Fewer gaps than this have no 99th percentile to speak of.
FEWEST_GAPS = 300
MOST_WAITED = 0.03


@dataclass(frozen=True, slots=True)
class Latency:
    """A quantile in a sliding window at `at` seconds: ours, and those of the engine's gaps from half a percentile point
    below to half a point above; that of the client's reads. `waited`: share of the window in which somebody on the way
    of the tokens waited for a core."""

    at: float
    window: str
    name: str
    ours: float
    low: float
    engine: float
    high: float
    client: float
    waited: float

    @property
    def undisturbed(self) -> bool:
        """Whether all who hand tokens on got a core when they needed one; otherwise gaps on the wire are not the
        engine's, and need not be."""
        return self.waited <= MOST_WAITED

    @property
    def agrees(self) -> bool:
        allowed = max(RELATIVE * self.engine, ABSOLUTE_SECONDS)
        # Our quantiles are those of a sketch with a relative error of one per cent.
        return abs(self.ours - self.engine) <= allowed or 0.99 * self.low <= self.ours <= 1.01 * self.high


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
            since_ns, until_ns = (at_ns // SECOND - seconds + 1) * SECOND, at_ns - _BEAT_NS
            theirs = _between(engine, since_ns, until_ns)
            if len(theirs) < FEWEST_GAPS:
                continue
            clients = _between(client, since_ns, until_ns)
            waited_ns = sum(w.longest_ns(since_ns - o, at_ns - o, DELIVERY_ROLES) for o, w in waits)
            waited = waited_ns / (at_ns - since_ns)
            for name, rank in RANKS.items():
                found = page.matching(f"prefillwatch_inter_token_latency_{name}_seconds", _labels(window))
                if found:
                    low, middle, high = (quantile(theirs, rank + points) for points in (-POINTS, 0.0, POINTS))
                    at = (at_ns - offset) / SECOND
                    yield Latency(at, window, name, found[0], low, middle, high, quantile(clients, rank), waited)


def _engine_gaps(truth: Truth) -> Iterator[tuple[int, float]]:
    offset = truth.header["started_monotonic_ns"]
    for line in truth.kind("iteration"):
        for gap in line.get("itl") or ():
            yield line["at"] + offset, gap


def _client_gaps(truth: Truth) -> Iterator[tuple[int, float]]:
    offset = truth.header["started_monotonic_ns"]
    for reads in truth.seen.reads.values():
        for (before_ns, _), (at_ns, _) in itertools.pairwise(reads):
            yield at_ns + offset, (at_ns - before_ns) / SECOND


def _labels(window: str) -> dict[str, str]:
    return {"window": window, "population": "all"}


def _between(gaps: list[tuple[int, float]], since_ns: int, until_ns: int) -> list[float]:
    low, high = bisect.bisect_left(gaps, (since_ns, 0.0)), bisect.bisect_right(gaps, (until_ns, 0.0))
    return sorted(gap for _, gap in gaps[low:high])


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
    return [asdict(each) | {"agrees": each.agrees} for each in found]
