"""An upstream that should not be asked for its metrics while nothing is in flight. Times in milliseconds."""

from __future__ import annotations

import asyncio
import time

import pytest

from prefillwatch.analysis.requests.request import Request
from prefillwatch.export import table
from prefillwatch.observer.process import Observer
from prefillwatch.settings.declared import DEFAULTS
from prefillwatch.settings.views import observer_view


@pytest.mark.parametrize("idle", [True, False])
def test_it_is_asked_as_soon_as_a_request_is_in_flight(idle: bool) -> None:
    settings = observer_view(DEFAULTS, tap_fds=(), control_fd=-1, upstream="http://127.0.0.1:1", scrape_idle=idle)
    observer = Observer(settings)
    observation = observer.observation

    def asked() -> bool:
        observation.snapshot()
        return () in observation.registry.gauge(table.UPSTREAM_SCRAPE_SUCCESS)

    async def play() -> None:
        poller = observer._poller
        await poller.poll_metrics_unless_at_rest()
        assert asked() is idle
        observation.core._ledger.received(
            Request(rid=1, endpoint="completions", received_ns=time.monotonic_ns(), model=0)
        )
        await poller.poll_metrics_unless_at_rest()
        assert asked()
        await observer._fetcher.close()
        await observer._page_fetcher.close()

    asyncio.run(play())
