"""Asks the upstream server about itself: its metrics every second, its models now and then.

Nothing here is on the data path, and nothing it meets (no answer, an endless one, fifty megabytes, garbage) does more
than make the figures unknown (see `upstream`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, Protocol

import msgspec

from prefillwatch.engine import model_list
from prefillwatch.engine.errors import FetchError, FetchReason, PageError, UpstreamError
from prefillwatch.engine.fetch import Fetcher
from prefillwatch.engine.kinds import PageSample, read_page
from prefillwatch.engine.upstream import Scrapes
from prefillwatch.units import NS

LARGEST_PAGE: Final = 16 << 20
MOST_MODELS: Final = 1024
LONGEST_MODEL_NAME: Final = 256
#: From this size on a page is read by a thread, to keep the event loop turning.
_LARGE_PAGE: Final = 256 << 10

log = logging.getLogger(__name__)


class Listener(Protocol):
    """Is notified of news at once, in the event loop of the poller. Must not raise."""

    def on_page(self, page: PageSample, at_ns: int) -> None:
        """The metrics were read, at this time of the clock."""

    def on_models(self, names: tuple[str, ...]) -> None:
        """The names served changed."""

    def on_scrapes(self, scrapes: Scrapes) -> None:
        """The metrics were read, or could not be, or are not read for now."""


class UpstreamPoller:
    """Polls one upstream until cancelled. ``clock`` gives monotonic nanoseconds.

    The page lies at ``page_path`` of ``pages``, which is upstream itself by default. While upstream is not ``busy`` it
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
        listener: Listener,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._fetcher = fetcher
        self._pages = pages if pages is not None else fetcher
        self._page_path = page_path
        self._busy = busy
        self._was_busy = False
        self._interval_s = interval_s
        self._models_interval_s = models_interval_s
        self._listener = listener
        self._clock = clock
        self._models: tuple[str, ...] = ()
        self._scrapes = Scrapes()
        self._leaves_out = False  # the last page had more series than are read

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

    async def poll_metrics_unless_at_rest(self) -> None:
        """Read the page, and once more after the last request has ended."""
        busy = self._busy()
        resting = not (busy or self._was_busy)
        self._was_busy = busy
        if not resting:
            await self.poll_metrics()
        elif not self._scrapes.resting:
            self._scrapes = replace(self._scrapes, resting=True)
            self._listener.on_scrapes(self._scrapes)

    async def poll_metrics(self) -> None:
        begin = self._clock()
        try:
            page = await self._fetch_page()
        except UpstreamError as error:
            failures, reason = dict(self._scrapes.failures), error.reason.value
            if self._scrapes.success is not False:
                log.warning("upstream's metrics cannot be read (%s): %s%s", reason, error, elsewhere_hint(error))
            failures[reason] = failures.get(reason, 0) + 1
            self._scrapes = Scrapes(False, (self._clock() - begin) / NS, failures)
        else:
            if self._scrapes.success is False:
                log.info("upstream's metrics can be read again")
            if page.left_out and not self._leaves_out:
                log.warning(
                    "upstream's metrics have %d more series than are read; figures are incomplete", page.left_out
                )
            self._leaves_out = bool(page.left_out)
            self._scrapes = Scrapes(True, (self._clock() - begin) / NS, self._scrapes.failures)
            self._listener.on_page(page, self._clock())
        self._listener.on_scrapes(self._scrapes)

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
            self._listener.on_models(names)

    async def _fetch_page(self) -> PageSample:
        answer = await self._pages.get(self._page_path, limit=LARGEST_PAGE, accept="text/plain;version=0.0.4")
        if answer.status != 200:
            raise FetchError(FetchReason.HTTP_STATUS, f"{self._page_path} answered {answer.status}", answer.status)
        body = answer.body
        if not answer.framed:  # the last line may have been cut in the middle of its number
            body = body[: body.rfind(b"\n") + 1]
        return await asyncio.to_thread(read_page, body) if len(body) > _LARGE_PAGE else read_page(body)


def elsewhere_hint(error: UpstreamError) -> str:
    """What to set where something else than a page of metrics was found; empty where that is not the trouble."""
    status = error.status if isinstance(error, FetchError) else 0
    if status == 501:
        return "; llama.cpp's server has metrics with --metrics"
    if status in (400, 404) or 300 <= status < 400 or isinstance(error, PageError):
        return "; if the page lies elsewhere, set upstream_metrics_url"
    return ""
