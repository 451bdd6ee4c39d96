"""A core and all that is shown of it: metrics, `/api/state`, incidents and the live page."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from prefillwatch import __version__
from prefillwatch.analysis.requests import ModelNames, PromptBuckets
from prefillwatch.analysis.settings import AnalysisSettings
from prefillwatch.analysis.tuning import DEFAULT, Tuning
from prefillwatch.contract import limits
from prefillwatch.core.core import Core
from prefillwatch.core.inputs import Beat, Input, Look
from prefillwatch.export import table
from prefillwatch.export.flight_request import FlightFile, NoFlightRecorderError
from prefillwatch.export.page_files import live_page
from prefillwatch.export.registry import Registry, Snapshot
from prefillwatch.export.spec import window_name
from prefillwatch.export.viewers import Viewers
from prefillwatch.observer.api import Accounts, IncidentHistory, advice_now, relay_now, streams_now, wall_offset
from prefillwatch.observer.intake import read_process
from prefillwatch.observer.live import LiveFeed, live_figures
from prefillwatch.observer.metrics import (
    Gauges,
    Publisher,
    publish_control,
    publish_gpus,
    publish_link,
    publish_processes,
    publish_relays,
    publish_upstream,
)
from prefillwatch.story import Account
from prefillwatch.units import NS


def _nothing() -> None: ...


class Observation:
    """Implements `AdminView`. `feed` it, and `beat` a few times a second."""

    def __init__(
        self,
        settings: AnalysisSettings,
        clock: Callable[[], int] = time.monotonic_ns,
        wall_offset: Callable[[], float] = wall_offset,
        incident_prefix: str = "",
        *,
        plugin: bool = False,
        scrape_interval_s: float = 1.0,
        cpu_clock: Callable[[], int] = time.thread_time_ns,
        tuning: Tuning = DEFAULT,
    ) -> None:
        """``wall_offset`` gives Unix seconds less seconds of the clock; ``plugin``: the engine may tell its steps."""
        self.clock = clock
        self.wall_offset = wall_offset
        self.names = ModelNames(settings.max_models)
        self.registry = Registry()
        self.history = IncidentHistory(self.names, incident_prefix, wall_offset)
        self.publisher = Publisher(self.registry, self.names, PromptBuckets(settings.prompt_buckets), self.history.add)
        self.core = Core(
            settings,
            self.names,
            self.publisher,
            scrape_interval_s=scrape_interval_s,
            cpu_clock=cpu_clock,
            tuning=tuning,
        )
        self.kept_accounts = Accounts(self.core.ledger, self.history)
        self.live = LiveFeed(self.core.ledger, self.names, self.known_now, self._figures, self.incidents, wall_offset)
        self.viewers = Viewers(self.live.open, self.live.close, self.live.hello)
        #: Called before something is shown, to take in what is there.
        self.take_in: Callable[[], object] = _nothing
        #: Whether a look at the metrics is an input, as time passes with it. While a recording is played the looks that
        #: count are those of then.
        self.looks_count = True
        #: Writes the last minutes to a file.
        self.write_flight: Callable[[], Awaitable[FlightFile]] | None = None
        self.registry.gauge(table.BUILD_INFO).set((__version__,), 1.0)
        # Alerts are about these: there from the beginning, or the first refusal would be no increase.
        for reason in limits.WANT_OF_ROOM:
            self.registry.counter(table.REFUSED_REQUESTS).add((reason,), 0)
        self.registry.precreate(table.UPSTREAM_SCRAPE_FAILURES)
        self.registry.precreate(table.UPSTREAM_HEALTH_FAILURES)
        self._plugin = plugin
        self._gauges = Gauges(self.registry, self.core.ledger, self.names)

    def feed(self, given: Input) -> None:
        """It happened now."""
        self.core.feed(given, self.clock())

    def beat(self) -> None:
        """Work through what was fed; viewers get the news."""
        self.feed(Beat())
        if self.viewers:
            for message in self.live.news(self.known_now()):
                self.viewers.send(message)

    def known_now(self) -> int:
        """As of when the books are."""
        return self.core.known_until(self.clock())

    # --- What the admin server shows ---

    def snapshot(self) -> Snapshot:
        self.take_in()
        if self.looks_count:
            self.feed(Look())
        core, registry, now_ns = self.core, self.registry, self.clock()
        self._gauges.refresh(self.known_now())
        publish_upstream(registry, core.upstream.snapshot(now_ns))
        publish_gpus(registry, core.gpus)
        if self._plugin:
            publish_link(registry, core.engine_links, core.engine_steps, core.ledger, now_ns)
        publish_relays(registry, core.relays)
        publish_control(registry, core.control)
        publish_processes(registry, core.control.processes, read_process)
        return registry.snapshot()

    def state(self) -> dict[str, Any]:
        self.take_in()
        core, now_ns = self.core, self.clock()
        upstream, health, control = core.upstream.snapshot(now_ns), core.control.upstream, core.control
        checks = (
            {"health_check_seconds": health.check_seconds, "health_check_failures": health.failures} if health else {}
        )
        ready, reason = self.ready()
        relays: dict[str, dict[str, Any]] = {str(each.index): {"state": each.state} for each in control.relays}
        for index, relay in core.relays.relays.items():
            relays.setdefault(str(index), {}).update(relay_now(relay, now_ns))
        return {
            "time": now_ns / NS + self.wall_offset(),
            "version": __version__,
            "upstream": {"up": upstream.up, "server": upstream.server, "models": list(upstream.models), **checks},
            "ready": ready,
            "reason": reason,
            "draining": control.draining,
            "restarts": msgspec.to_builtins(control.restarts),
            "processes": [msgspec.to_builtins(process) for process in control.processes],
            "relays": relays,
            "advice": advice_now(core.ledger, self.names),
            **streams_now(core.ledger, self.names, self.known_now(), self.wall_offset()),
        }

    def incidents(self, limit: int) -> list[dict[str, Any]]:
        return self.history.newest(self.core.ledger.causes.incidents.open, self.known_now(), limit)

    def accounts(self) -> list[Account]:
        return self.kept_accounts.newest(self.known_now())

    async def write_flight_now(self) -> FlightFile:
        if self.write_flight is None:
            raise NoFlightRecorderError
        return await self.write_flight()

    def page(self) -> bytes:
        return live_page(self.snapshot(), *self.ready())

    def ready(self) -> tuple[bool, str]:
        control = self.core.control
        if control.draining:
            return False, "draining: no new requests are accepted"
        if control.ready is not None:
            return control.ready, control.reason
        up = self.core.upstream.up
        if up:
            return True, "upstream is healthy"
        return False, "upstream was not asked yet" if up is None else "upstream does not answer its health check"

    def _figures(self) -> dict[str, Any]:
        """For the live page, once a second while somebody looks."""
        ledger = self.core.ledger
        windows = tuple(map(window_name, self.core.settings.windows))
        ready, reason = self.ready()
        return {
            **live_figures(self.snapshot(), advice_now(ledger, self.names), windows, ledger.buckets.labels),
            "ready": ready,
            "reason": reason,
            "server": self.core.upstream.snapshot(self.clock()).server,
        }
