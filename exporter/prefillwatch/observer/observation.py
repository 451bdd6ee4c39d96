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
from prefillwatch.core.view import View
from prefillwatch.export import table
from prefillwatch.export.flight_request import FlightFile, NoFlightRecorderError
from prefillwatch.export.page_files import live_page
from prefillwatch.export.prediction_request import UnknownModelError
from prefillwatch.export.registry import Registry, Snapshot
from prefillwatch.export.spec import window_name
from prefillwatch.export.viewers import Viewers
from prefillwatch.observer.api import (
    Accounts,
    IncidentHistory,
    advice_now,
    prediction,
    pressures_now,
    relay_state,
    streams_now,
    tenants_now,
    tenants_shown,
    wall_offset,
)
from prefillwatch.observer.intake import read_process
from prefillwatch.observer.live import LiveFeed, live_figures
from prefillwatch.observer.metrics import (
    Exemplars,
    Publisher,
    StandardHistograms,
    publish_control,
    publish_gpus,
    publish_link,
    publish_models,
    publish_processes,
    publish_relays,
    publish_senders,
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
        exemplars: bool = True,
        exponential: bool = False,
    ) -> None:
        """``wall_offset`` gives Unix seconds less seconds of the clock; ``plugin``: the engine may report its steps;
        ``exemplars``: slow values are shown with their request and trace; ``exponential``: histograms are kept with
        exponential buckets, too, and so are those of OpenTelemetry's standard."""
        self.clock = clock
        self.wall_offset = wall_offset
        self.names = ModelNames(settings.max_models)
        self.registry = Registry(exponential=exponential)
        self.standard = StandardHistograms() if exponential else None
        self.history = IncidentHistory(incident_prefix, wall_offset)
        self.publisher = Publisher(
            self.registry,
            self.names,
            PromptBuckets(settings.prompt_buckets),
            self.history.add,
            Exemplars(settings.wait.min, wall_offset) if exemplars else None,
            self.standard,
        )
        self.core = Core(
            settings,
            self.names,
            self.publisher,
            scrape_interval_s=scrape_interval_s,
            cpu_clock=cpu_clock,
            tuning=tuning,
        )
        self.kept_accounts = Accounts(self.view, self.history)
        self.live = LiveFeed(self.core, clock, self._figures, self.incidents, wall_offset)
        self.viewers = Viewers(self.live.open, self.live.close, self.live.hello)
        #: Called before something is shown, to take in what is there.
        self.take_in: Callable[[], object] = _nothing
        #: Set what else there is to say.
        self.more_metrics: list[Callable[[Registry], None]] = []
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

    def feed(self, given: Input) -> None:
        """It happened now."""
        self.core.feed(given, self.clock())

    def beat(self) -> None:
        """Work through what was fed; viewers get the news."""
        self.feed(Beat())
        if self.viewers:
            for message in self.live.news(self.known_now()):
                self.viewers.send(message)

    def view(self) -> View:
        """All that is known now."""
        return self.core.view(self.clock())

    def known_now(self) -> int:
        """As of when the books are."""
        return self.core.known_until(self.clock())

    # --- What the admin server shows ---

    def snapshot(self, *, exponential: bool = False) -> Snapshot:
        self.take_in()
        if self.looks_count:
            self.feed(Look())
        registry, view = self.registry, self.view()
        publish_models(registry, view)
        publish_senders(registry, view)
        publish_upstream(registry, view.upstream)
        publish_gpus(registry, view.gpus)
        if self._plugin:
            publish_link(registry, view.engine_link)
        publish_relays(registry, view.relays, view.tap)
        publish_control(registry, view.control)
        publish_processes(registry, view.control.processes, read_process)
        for publish in self.more_metrics:
            publish(registry)
        return registry.snapshot(exponential=exponential)

    def state(self) -> dict[str, Any]:
        self.take_in()
        view = self.view()
        upstream, health, control = view.upstream, view.control.upstream, view.control
        checks = (
            {"health_check_seconds": health.check_seconds, "health_check_failures": health.failures} if health else {}
        )
        ready, reason = self.ready()
        relays: dict[str, dict[str, Any]] = {str(each.index): {"state": each.state} for each in control.relays}
        for relay in view.relays:
            relays.setdefault(str(relay.index), {}).update(relay_state(relay))
        return {
            "time": view.now_ns / NS + self.wall_offset(),
            "version": __version__,
            "upstream": {"up": upstream.up, "server": upstream.server, "models": list(upstream.models), **checks},
            "ready": ready,
            "reason": reason,
            "draining": control.draining,
            "restarts": msgspec.to_builtins(control.restarts),
            "processes": [msgspec.to_builtins(process) for process in control.processes],
            "relays": relays,
            "advice": advice_now(view),
            "pressure": pressures_now(view),
            **streams_now(view, self.wall_offset()),
        }

    def predict(self, prompt_tokens: int, cached_tokens: int, model: str | None) -> dict[str, Any]:
        self.take_in()
        if model is not None and not self.names.is_served(model):
            raise UnknownModelError(model)
        return prediction(self.view(), prompt_tokens, cached_tokens)

    def incidents(self, limit: int) -> list[dict[str, Any]]:
        return self.history.newest(self.view().incidents, limit)

    def tenants(self) -> dict[str, Any]:
        self.take_in()
        return tenants_now(self.view())

    def accounts(self) -> list[Account]:
        return self.kept_accounts.newest()

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
        windows = tuple(map(window_name, self.core.settings.windows))
        snapshot, view = self.snapshot(), self.view()
        ready, reason = self.ready()
        return {
            **live_figures(snapshot, advice_now(view), windows, self.core.buckets.labels),
            "ready": ready,
            "reason": reason,
            "server": view.upstream.server,
            "tenants": tenants_shown(view),
        }
