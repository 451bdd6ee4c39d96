"""Asks the upstream server about itself: its metrics and health every second, its models now and then.

Nothing here is on the data path, and nothing it meets (no answer, an endless one, fifty megabytes, garbage) does more
than make the figures unknown. A figure that was not renewed for a few intervals is unknown as well.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from prefillwatch.contract.buckets import WINDOWS_S
from prefillwatch.engine import model_list
from prefillwatch.engine.carry import EngineCarry
from prefillwatch.engine.errors import FetchError, FetchReason, PageError, UpstreamError
from prefillwatch.engine.fetch import Fetcher
from prefillwatch.engine.kinds import MOST_ENGINES, EngineSample, PageSample, read_page
from prefillwatch.units import NS

LARGEST_PAGE: Final = 16 << 20
MOST_MODELS: Final = 1024
LONGEST_MODEL_NAME: Final = 256
#: From this size on a page is read by a thread, to keep the event loop turning.
_LARGE_PAGE: Final = 256 << 10

log = logging.getLogger(__name__)


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
    scrape_age: float | None = None  # since the last success
    scrape_failures: dict[str, int] = field(default_factory=dict)  # by reason
    kv_signal_present: bool | None = False  # None: it was not asked on purpose


class Listener(Protocol):
    """Is told of news at once, in the event loop of the poller. Must not raise."""

    def on_page(self, page: PageSample, at_ns: int) -> None:
        """The metrics were read, at this time of the clock."""

    def on_models(self, names: Sequence[str]) -> None:
        """The names served changed."""

    def on_up(self, up: bool) -> None:
        """Health was checked."""


class UpstreamPoller:
    """Polls one upstream until cancelled. ``clock`` gives monotonic nanoseconds.

    The page lies at ``page_path`` of ``pages``, which is upstream itself if not told. While upstream is not ``busy`` it
    is not asked for its page: a model that sleeps would be kept awake, or loaded, by that alone.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        pages: Fetcher | None = None,
        page_path: str = "/metrics",
        busy: Callable[[], bool] = lambda: True,
        interval_s: float = 1.0,
        models_interval_s: float = 10.0,
        windows_s: tuple[int, ...] = WINDOWS_S,
        listener: Listener | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._fetcher = fetcher
        self._pages = pages if pages is not None else fetcher
        self._page_path = page_path
        self._busy = busy
        self._was_busy = False
        self._resting = False
        self._interval_s = interval_s
        self._models_interval_s = models_interval_s
        self._stale_ns = int(max(5 * interval_s, 3.0) * NS)
        self._windows_s = windows_s
        self._listener = listener
        self._clock = clock
        self._page: PageSample | None = None
        self._page_ns = 0
        self._carries: dict[str, EngineCarry] = {}
        self._models: tuple[str, ...] = ()
        self._up: bool | None = None
        self._success: bool | None = None
        self._duration: float | None = None
        self._failures: dict[str, int] = {}

    async def run(self) -> None:
        """Poll for ever; cancel it to end it, then close the fetcher."""
        await asyncio.gather(
            self._repeat(self.poll_metrics_unless_at_rest, self._interval_s),
            self._repeat(self.poll_models, self._models_interval_s),
        )

    async def _repeat(self, poll: Callable[[], Awaitable[None]], interval_s: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            try:
                await poll()
            except Exception:
                # A fault of ours in one poll must not end polling, and with it the signals, for good.
                log.exception("polling upstream failed unexpectedly")
            due = max(due + interval_s, loop.time())
            await asyncio.sleep(due - loop.time())

    def health(self, up: bool) -> None:
        """Its health was checked, by the supervisor."""
        self._up = up
        if self._listener is not None:
            self._listener.on_up(up)

    async def poll_metrics_unless_at_rest(self) -> None:
        """Read the page, and once more after the last request has ended."""
        busy = self._busy()
        self._resting = not (busy or self._was_busy)
        self._was_busy = busy
        if not self._resting:
            await self.poll_metrics()

    async def poll_metrics(self) -> None:
        begin = self._clock()
        try:
            page = await self._fetch_page()
        except UpstreamError as error:
            self._failed(error)
        else:
            self._succeeded(page)
        self._duration = (self._clock() - begin) / NS

    async def poll_models(self) -> None:
        try:
            answer = await self._fetcher.get(model_list.PATH, limit=model_list.LARGEST_BYTES, accept="application/json")
            served = [model.id for model in model_list.served_models(answer.body)[:MOST_MODELS]]
        except (FetchError, msgspec.DecodeError) as error:
            log.debug("no list of models from upstream: %s", error)
            return
        names = tuple(name for name in served if name and len(name) <= LONGEST_MODEL_NAME)
        if answer.status == 200 and names != self._models:
            self._models = names
            if self._listener is not None:
                self._listener.on_models(names)

    def snapshot(self) -> UpstreamSnapshot:
        """What is known now; stale figures left out."""
        now = self._clock()
        page = self._page if self._page is not None and now - self._page_ns <= self._stale_ns else None
        # While we do not ask, nothing is known of now, but what kind of server it is has not been lost.
        last = self._page if self._resting else page
        samples = {sample.engine: sample for sample in page.engines} if page is not None else {}
        return UpstreamSnapshot(
            up=self._up,
            server=last.server if last is not None else None,
            engines=tuple(self._engine_state(name, samples.get(name), now) for name in self._carries),
            models=self._models,
            scrape_success=self._success,
            scrape_duration=self._duration,
            scrape_age=(now - self._page_ns) / NS if self._page is not None else None,
            scrape_failures=dict(self._failures),
            kv_signal_present=_has_signal(last, resting=self._resting),
        )

    async def _fetch_page(self) -> PageSample:
        answer = await self._pages.get(self._page_path, limit=LARGEST_PAGE, accept="text/plain;version=0.0.4")
        if answer.status != 200:
            raise FetchError(FetchReason.HTTP_STATUS, f"{self._page_path} answered {answer.status}", answer.status)
        body = answer.body
        if not answer.framed:  # the last line may have been cut in the middle of its number
            body = body[: body.rfind(b"\n") + 1]
        return await asyncio.to_thread(read_page, body) if len(body) > _LARGE_PAGE else read_page(body)

    def _succeeded(self, page: PageSample) -> None:
        if self._success is False:
            log.info("upstream's metrics can be read again")
        self._success = True
        if page.left_out and not (self._page is not None and self._page.left_out):
            log.warning("upstream's metrics have %d more series than are read; figures are incomplete", page.left_out)
        self._page, self._page_ns = page, self._clock()
        for sample in page.engines:
            self._carry(sample.engine).update(sample, page.start_time, self._page_ns)
        if self._listener is not None:
            self._listener.on_page(page, self._page_ns)

    def _failed(self, error: UpstreamError) -> None:
        reason = error.reason.value
        if self._success is not False:
            log.warning("upstream's metrics cannot be read (%s): %s%s", reason, error, elsewhere_hint(error))
        self._success = False
        self._failures[reason] = self._failures.get(reason, 0) + 1

    def _carry(self, engine: str) -> EngineCarry:
        carry = self._carries.get(engine)
        if carry is None:
            if len(self._carries) >= MOST_ENGINES:
                del self._carries[next(iter(self._carries))]
            carry = self._carries[engine] = EngineCarry(max(self._windows_s))
        return carry

    def _engine_state(self, engine: str, sample: EngineSample | None, now: int) -> EngineState:
        carry = self._carries[engine]
        return EngineState(
            engine=engine,
            sample=sample,
            kv_peaks={window: carry.kv_peak.highest(window, now) for window in self._windows_s},
            preemptions_total=carry.preemptions_total,
            restarts=carry.restarts,
        )


def _has_signal(page: PageSample | None, *, resting: bool) -> bool | None:
    if page is None:
        return None if resting else False
    return page.kv_signal_present


def elsewhere_hint(error: UpstreamError) -> str:
    """What to set where something else than a page of metrics was found; empty where that is not the trouble."""
    status = error.status if isinstance(error, FetchError) else 0
    if status in (400, 404) or 300 <= status < 400 or isinstance(error, PageError):
        return "; if the page lies elsewhere, set upstream_metrics_url"
    return ""
