"""What is known of the upstream server by now, and what of that is too old. Pure: news and the time come in."""

from __future__ import annotations

from dataclasses import dataclass, field

from prefillwatch.engine.carry import EngineCarry
from prefillwatch.engine.kinds import MOST_ENGINES, EngineSample, PageSample
from prefillwatch.units import NS


@dataclass(frozen=True, slots=True)
class Scrapes:
    """How reading upstream's metrics goes."""

    success: bool | None = None  # of the last one; None: there was none yet
    duration: float | None = None  # of the last one, seconds
    failures: dict[str, int] = field(default_factory=dict)  # so far, by reason
    resting: bool = False  # it is not read on purpose


@dataclass(frozen=True, slots=True)
class EngineState:
    """What is known of one engine now. ``sample`` is None when the newest one is too old."""

    engine: str
    sample: EngineSample | None
    kv_peaks: dict[int, float | None]  # by window in seconds, 0 to 1
    preemptions_total: float | None  # carried over restarts
    restarts: int


@dataclass(frozen=True, slots=True)
class UpstreamSnapshot:
    """What is known of the upstream server now; times in seconds. None: not asked yet, or not known."""

    up: bool | None = None  # taken to be up, by its health checks
    server: str | None = None  # kind of server; None when the newest page is too old
    engines: tuple[EngineState, ...] = ()
    models: tuple[str, ...] = ()  # names it serves, adapters too; kept when a later look-up fails
    scrape_success: bool | None = None
    scrape_duration: float | None = None
    scrape_failures: dict[str, int] = field(default_factory=dict)  # by reason
    scrape_age: float | None = None  # since the last success
    kv_signal_present: bool | None = False  # None: it was not asked on purpose


class UpstreamState:
    """Set what is reported; `snapshot` has what of it still holds."""

    def __init__(self, windows_s: tuple[int, ...], interval_s: float = 1.0) -> None:
        """``interval_s``: seconds between two pages."""
        self.models: tuple[str, ...] = ()
        self.up: bool | None = None
        self.scrapes = Scrapes()
        self._windows_s = windows_s
        self._stale_ns = int(max(5 * interval_s, 3.0) * NS)
        self._page: PageSample | None = None
        self._page_ns = 0
        self._carries: dict[str, EngineCarry] = {}

    def page(self, page: PageSample, at_ns: int) -> None:
        self._page, self._page_ns = page, at_ns
        for sample in page.engines:
            self._carry(sample.engine).update(sample, page.start_time, at_ns)

    def snapshot(self, now_ns: int) -> UpstreamSnapshot:
        """What is known now; stale figures left out."""
        page = self._page if self._page is not None and now_ns - self._page_ns <= self._stale_ns else None
        # While it is not asked, nothing is known of now, but what kind of server it is has not been lost.
        resting = self.scrapes.resting
        last = self._page if resting else page
        samples = {sample.engine: sample for sample in page.engines} if page is not None else {}
        nothing = None if resting else False
        return UpstreamSnapshot(
            up=self.up,
            server=last.server if last is not None else None,
            engines=tuple(self._engine_state(name, samples.get(name), now_ns) for name in self._carries),
            models=self.models,
            scrape_success=self.scrapes.success,
            scrape_duration=self.scrapes.duration,
            scrape_failures=self.scrapes.failures,
            scrape_age=(now_ns - self._page_ns) / NS if self._page is not None else None,
            kv_signal_present=last.kv_signal_present if last is not None else nothing,
        )

    def _carry(self, engine: str) -> EngineCarry:
        carry = self._carries.get(engine)
        if carry is None:
            if len(self._carries) >= MOST_ENGINES:
                del self._carries[next(iter(self._carries))]
            carry = self._carries[engine] = EngineCarry(max(self._windows_s))
        return carry

    def _engine_state(self, engine: str, sample: EngineSample | None, now_ns: int) -> EngineState:
        carry = self._carries[engine]
        return EngineState(
            engine=engine,
            sample=sample,
            kv_peaks={window: carry.kv_peak.highest(window, now_ns) for window in self._windows_s},
            preemptions_total=carry.preemptions_total,
            restarts=carry.restarts,
        )
