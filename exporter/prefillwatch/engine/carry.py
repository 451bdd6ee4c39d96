"""What must outlive a single scrape: counters over restarts of the engine, and the peak of the KV cache. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Final

from prefillwatch.engine.kinds import EngineSample
from prefillwatch.units import NS

#: So many pages in a row with an earlier start time are no other process that answers in turn with ours: that would
#: have to win the toss each time.
_EARLIER_PAGES: Final = 30


class CarriedCounter:
    """A counter of another process that starts again at zero when that process does; ours never falls.

    A restart shows in a later start time, or by a value that fell, this one or another of the same page: servers that
    report no start time may count nothing but tokens. A page with an *earlier* start time comes from
    another process behind the same address, whose count is another one: it is left out, or the total would grow with
    every alternation. When all pages report an earlier start, it is a restart after the host's clock was set back.
    """

    __slots__ = ("_earlier", "_raw", "_start_time", "restarts", "total")

    def __init__(self) -> None:
        self.total: float | None = None
        self.restarts = 0
        self._raw = 0.0
        self._start_time: float | None = None
        self._earlier = 0  # pages in a row with an earlier start time

    def update(self, raw: float | None, start_time: float | None, *, fell: bool = False) -> None:
        """``raw`` as the page has it; None: it does not. ``fell``: another counter of the page did."""
        earlier = start_time is not None and self._start_time is not None and start_time < self._start_time
        self._earlier = self._earlier + 1 if earlier else 0
        if earlier and self._earlier < _EARLIER_PAGES:
            return
        if earlier or fell or self._restarted(raw, start_time):
            self.restarts += 1
            self._raw = 0.0
            self._earlier = 0
        self._start_time = start_time if start_time is not None else self._start_time
        if raw is not None:
            self.total = (self.total or 0.0) + raw - self._raw
            self._raw = raw

    def _restarted(self, raw: float | None, start_time: float | None) -> bool:
        later = start_time is not None and self._start_time is not None and start_time > self._start_time
        return later or self.falls(raw)

    def falls(self, raw: float | None) -> bool:
        """Whether the next value is smaller than the last one."""
        return raw is not None and raw < self._raw


class Peak:
    """The highest value of a sliding window. Keeps only what can still be one: each value is above all later ones."""

    __slots__ = ("_keep_ns", "_times", "_values")

    def __init__(self, longest_window_s: float) -> None:
        self._keep_ns = int(longest_window_s * NS)
        self._times: deque[int] = deque()
        self._values: deque[float] = deque()

    def add(self, value: float, now_ns: int) -> None:
        while self._values and self._values[-1] <= value:
            self._values.pop()
            self._times.pop()
        self._values.append(value)
        self._times.append(now_ns)
        while self._times[0] < now_ns - self._keep_ns:
            self._times.popleft()
            self._values.popleft()

    def highest(self, window_s: float, now_ns: int) -> float | None:
        """The highest value not older than the window; None when there is none."""
        first = bisect_left(self._times, now_ns - int(window_s * NS))
        return self._values[first] if first < len(self._values) else None


class EngineCarry:
    """Everything that is carried for one engine."""

    __slots__ = ("_others", "_preemptions", "kv_peak")

    def __init__(self, longest_window_s: float) -> None:
        self._preemptions = CarriedCounter()
        #: Counters that nobody asks for: they show restarts.
        self._others = CarriedCounter(), CarriedCounter()
        self.kv_peak = Peak(longest_window_s)

    @property
    def preemptions_total(self) -> float | None:
        """Preemptions since the engine was first seen, with those it reported then; None: it never did."""
        return self._preemptions.total

    @property
    def restarts(self) -> int:
        return self._preemptions.restarts

    def update(self, sample: EngineSample, start_time: float | None, now_ns: int) -> None:
        counters = self._preemptions, *self._others
        values = sample.preemptions_total, sample.prompt_tokens_total, sample.generated_tokens_total
        reported = list(zip(counters, values, strict=True))
        fell = any(counter.falls(value) for counter, value in reported)
        for counter, value in reported:
            counter.update(value, start_time, fell=fell)
        if sample.kv_usage is not None:
            self.kv_peak.add(sample.kv_usage, now_ns)
