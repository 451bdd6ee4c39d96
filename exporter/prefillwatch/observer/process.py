"""The observer's main loop: tap sockets, the clock, the admin server and the upstream poller around pure code."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import msgspec
import uvloop
from starlette.applications import Starlette

from prefillwatch import __version__, logs
from prefillwatch.analysis.ledger import Ledger
from prefillwatch.analysis.requests import ModelNames, PromptBuckets, Request
from prefillwatch.contract import limits
from prefillwatch.core.exchange import Exchange
from prefillwatch.core.relays import Relays
from prefillwatch.engine.fetch import Fetcher
from prefillwatch.engine.kinds import PageSample
from prefillwatch.engine.nvml import GpuMemory, GpuMemoryReader
from prefillwatch.engine.poller import UpstreamPoller
from prefillwatch.engine.step_report import StepReport
from prefillwatch.export import table
from prefillwatch.export.admin import create_app
from prefillwatch.export.admin_auth import Credentials
from prefillwatch.export.admin_server import serve_passed
from prefillwatch.export.flight_request import FlightFile, NoFlightRecorderError
from prefillwatch.export.page_files import live_page
from prefillwatch.export.registry import Registry, Snapshot
from prefillwatch.export.spec import window_name
from prefillwatch.export.viewers import Viewers
from prefillwatch.observer import engine_gauges, engine_ids, own_gauges
from prefillwatch.observer.advice import advice_now
from prefillwatch.observer.engine_link import EngineLink
from prefillwatch.observer.engine_steps import EngineSteps
from prefillwatch.observer.figures import figures
from prefillwatch.observer.gauges import Gauges
from prefillwatch.observer.incidents import IncidentHistory, wall_offset
from prefillwatch.observer.link_gauges import publish_link
from prefillwatch.observer.live import LiveFeed
from prefillwatch.observer.procfs import read_process
from prefillwatch.observer.publish import Publisher
from prefillwatch.observer.state import relay_now, streams_now
from prefillwatch.observer.told_steps import ToldSteps
from prefillwatch.settings.control import READY_LINE, Control, Restarts, decode_control
from prefillwatch.settings.processes import ObserverSettings
from prefillwatch.units import NS
from prefillwatch.wire.tap import MAX_PACKET_BYTES, End, Finish

#: How often the taps are read and what they told is worked through. Whoever asks gets what is there by then, so more
#: often would show nothing sooner; and each time costs as much as some hundred tokens.
BEAT_S: Final = 0.2
#: The same while somebody looks at the live page, where things are to move smoothly.
WATCHED_BEAT_S: Final = 0.1
#: A relay tells something every second. One that is none of the processes any more, and silent for so long, is gone.
_GONE_NS: Final = NS * 3 // 2
#: While a relay has more to tell than its socket holds, it is looked at so often, and given up after so many looks in
#: vain. The beat waits for that not longer than this.
_CATCH_UP_S: Final = 0.002
_LOOKS_IN_VAIN: Final = 10
_LONGEST_CATCH_UP_S: Final = 0.5
#: Packets of one relay taken in a row, so that the admin server gets its turn when a backlog is worked off.
_PACKETS_IN_A_ROW: Final = 32
_GPU_INTERVAL_S: Final = 5.0
#: Requests that ended are remembered for what the engine has to say of them, a moment later.
_MOST_OVER: Final = 256
#: Within this time the supervisor has told that it drains, if the signal that we got was for all of us.
_TERM_PATIENCE_S: Final = 0.3

log = logging.getLogger(__name__)
#: Ends of exchanges that are our doing; of a client only if a reason is told.
_OURS: Final = frozenset((Finish.REJECTED, Finish.CLIENT_CLOSED, Finish.CUT))


class Observer:
    """Everything one observer process holds. Also the `AdminView` of the admin server."""

    poller_type: ClassVar[type[UpstreamPoller]] = UpstreamPoller
    publisher_type: ClassVar[type[Publisher]] = Publisher

    def __init__(
        self,
        settings: ObserverSettings,
        clock: Callable[[], int] = time.monotonic_ns,
        wall_offset: Callable[[], float] = wall_offset,
        incident_prefix: str = "",
    ) -> None:
        """``wall_offset`` gives Unix seconds less seconds of the clock."""
        analysis = settings.analysis
        self._wall_offset = wall_offset
        self._settings = settings
        self._clock = clock
        self.names = ModelNames(analysis.max_models)
        self.registry = Registry()
        self._history = IncidentHistory(self.names, incident_prefix, wall_offset)
        buckets = PromptBuckets(analysis.prompt_buckets)
        self._publisher = self.publisher_type(self.registry, self.names, buckets, self._history)
        self.ledger = Ledger(analysis, self._publisher)
        self.taps = Relays(self.ledger, self.names, self._exchange_ended)
        self._gauges = Gauges(self.registry, self.ledger, self.names)
        self._control = Control(processes=(), draining=False, restarts=Restarts())
        self._delay = self.registry.histogram(table.OBSERVER_DELAY).child()
        self._fetcher = Fetcher(
            settings.upstream,
            api_key=settings.upstream_api_key,
            ca_file=settings.upstream_ca,
            insecure=settings.upstream_insecure,
        )
        self._page_fetcher, page_path = Fetcher.of_page(
            settings.upstream,
            settings.upstream_metrics_url,
            api_key=settings.upstream_api_key,
            ca_file=settings.upstream_ca,
            insecure=settings.upstream_insecure,
        )
        self._poller = self.poller_type(
            self._fetcher,
            pages=self._page_fetcher,
            page_path=page_path,
            busy=lambda: settings.scrape_idle or bool(self.ledger.requests),
            interval_s=settings.scrape_interval,
            windows_s=analysis.windows,
            listener=self,
            clock=clock,
        )
        self.engine_steps = EngineSteps(analysis.windows)
        self._told = ToldSteps(self.ledger.timeline)
        self._link = EngineLink(settings.engine_socket, self._engine_step)
        self._over: deque[Request] = deque(maxlen=_MOST_OVER)
        self._books_ns = 0
        self._tap_sockets: list[socket.socket] = []
        self._gpus: dict[str, GpuMemory] = {}
        self.live = LiveFeed(self.ledger, self.names, self._known_now, self._figures, self.incidents, wall_offset)
        self.viewers = Viewers(self.live.open, self.live.close, self.live.hello)
        self.registry.gauge(table.BUILD_INFO).set((__version__,), 1.0)
        # Alerts are about these: there from the beginning, or the first refusal would be no increase.
        for reason in limits.WANT_OF_ROOM:
            self.registry.counter(table.REFUSED_REQUESTS).add((reason,), 0)
        self.registry.precreate(table.UPSTREAM_SCRAPE_FAILURES)
        self.registry.precreate(table.UPSTREAM_HEALTH_FAILURES)

    # --- The tap ---

    def read_taps(self) -> bool:
        """Take what is there; True when there may be more."""
        # Each gets its turn, whatever the others have.
        return sum(map(self._read_tap, self._tap_sockets)) > 0

    def _read_tap(self, tap: socket.socket) -> bool:
        for _ in range(_PACKETS_IN_A_ROW):
            try:
                data = tap.recv(MAX_PACKET_BYTES)
            except (BlockingIOError, InterruptedError):
                return False
            if not data:
                return False
            self.take_packet(data)
        return True

    def take_packet(self, data: bytes) -> None:
        now_ns = self._clock()
        packet = self.taps.feed(data, now_ns)
        if packet is not None and packet.count:
            self._delay.observe((now_ns - packet.last_ns) / NS)

    def _known_now(self) -> int:
        """As of when the books are: now, unless a relay has more to tell of the past than it could yet."""
        self._books_ns = max(self._books_ns, self.taps.known_until(self._clock()))
        return self._books_ns

    def _bury_the_dead(self) -> None:
        """A relay process that died is not always followed by one that could tell."""
        now_ns, alive = self._clock(), {process.pid for process in self._control.processes}
        for index, relay in self.taps.relays.items():
            if relay.streams and relay.pid and relay.pid not in alive and now_ns - relay.taken_ns > _GONE_NS:
                self.take_packet(self.taps.farewell(index, now_ns))

    def _ask_relays(self) -> None:
        for index, tap in enumerate(self._tap_sockets):
            relay = self.taps.relays.get(index)
            if relay is None:
                continue
            with contextlib.suppress(OSError):  # it does not listen: once it does, its list shows what else to ask
                for packet in relay.asks(self._clock()):
                    tap.send(packet)

    def beat(self) -> None:
        """Work through what was read."""
        self._advance(self._clock())
        self.taps.release_over()
        for number, label in self.names.take_retired():
            self.ledger.forget_model(number)
            self.registry.forget("model", label)
        if self.viewers:
            for message in self.live.news(self._known_now()):
                self.viewers.send(message)

    def _advance(self, now_ns: int) -> None:  # noqa: ARG002 - a recording notes when it was
        known_ns = self._known_now()
        self._told.tell(known_ns)
        self.ledger.advance(known_ns)

    def _bring_up_to_date(self, now_ns: int) -> None:
        """Before somebody looks at the figures."""
        self._advance(now_ns)
        for books in self.ledger.models.values():
            books.concurrency.settle(self._books_ns)

    def _exchange_ended(self, exchange: Exchange, end: End) -> None:
        if end.finish is Finish.UPSTREAM_UNREACHABLE:
            self.registry.counter(table.UPSTREAM_UNREACHABLE).add((end.reason,))
        elif end.finish is Finish.UPSTREAM_TRUNCATED and end.reason:
            self.registry.counter(table.UPSTREAM_TRUNCATED).add((end.reason,))
        elif end.finish in _OURS and end.reason:
            self.registry.counter(table.REFUSED_REQUESTS).add((end.reason,))
        self._over.append(exchange.request)
        for reason, count in exchange.unparsed().items():
            self.registry.counter(table.UNPARSED_EVENTS).add((reason,), count)
        for fault in exchange.faults():
            log.error("an error of prefillwatch cost the figures of one request: %s; please report it", fault)

    # --- News of upstream ---

    def on_page(self, page: PageSample, at_ns: int) -> None:
        self.ledger.page(engine_gauges.engine_page(page, at_ns, self._wall_offset()))
        blocks = [engine.block_size for engine in page.engines if engine.block_size]
        looked_up = [each.prefix_queries_total for each in page.engines if each.prefix_queries_total is not None]
        self.ledger.cache_reported(max(blocks, default=None), in_use=any(looked_up) if looked_up else None)

    def on_models(self, names: Sequence[str]) -> None:
        self.names.serve(names)

    def on_up(self, up: bool) -> None:
        """The supervisor checked its health."""

    def _engine_step(self, link: int, report: StepReport) -> None:
        self._take_step(link, report, self._clock())

    def _take_step(self, link: int, report: StepReport, now_ns: int) -> None:
        self.engine_steps.take(link, report, now_ns)
        self._told.add(report, now_ns)
        for finished in report.finished:
            request = engine_ids.find([*self.ledger.requests.values(), *self._over], finished.request_id)
            if request is not None:
                self.ledger.timeline.engine_prefill(request.rid, round(finished.prefill_s * NS))

    # --- What the admin server shows ---

    def snapshot(self) -> Snapshot:
        self.read_taps()
        now_ns = self._clock()
        self._bring_up_to_date(now_ns)
        self._gauges.refresh(self._known_now())
        engine_gauges.publish_upstream(self.registry, self._poller.snapshot())
        engine_gauges.publish_gpus(self.registry, self._gpus)
        if self._settings.engine_socket:
            publish_link(self.registry, self._link, self.engine_steps, self.ledger, now_ns)
        own_gauges.publish_relays(self.registry, self.taps)
        own_gauges.publish_control(self.registry, self._control)
        own_gauges.publish_processes(self.registry, self._control.processes, read_process)
        return self.registry.snapshot()

    def state(self) -> dict[str, Any]:
        self.read_taps()
        now_ns = self._clock()
        now = now_ns / NS + self._wall_offset()
        upstream = self._poller.snapshot()
        return {
            "time": now,
            "version": __version__,
            "upstream": {
                "up": upstream.up,
                "server": upstream.server,
                "models": list(upstream.models),
                **self._health_now(),
            },
            "ready": self.ready()[0],
            "reason": self.ready()[1],
            "draining": self._control.draining,
            "restarts": msgspec.to_builtins(self._control.restarts),
            "processes": [msgspec.to_builtins(process) for process in self._control.processes],
            "relays": self._relays_now(),
            "advice": advice_now(self.ledger, self.names),
            **streams_now(self.ledger, self.names, self._known_now(), now - now_ns / NS),
        }

    def _relays_now(self) -> dict[str, dict[str, Any]]:
        """Of each relay what it tells itself, and what the supervisor thinks of it."""
        told: dict[str, dict[str, Any]] = {str(each.index): {"state": each.state} for each in self._control.relays}
        for index, relay in self.taps.relays.items():
            told.setdefault(str(index), {}).update(relay_now(relay, self._clock()))
        return told

    def _health_now(self) -> dict[str, Any]:
        health = self._control.upstream
        if health is None:
            return {}
        return {"health_check_seconds": health.check_seconds, "health_check_failures": health.failures}

    def incidents(self, limit: int) -> list[dict[str, Any]]:
        return self._history.newest(self.ledger.causes.incidents.open, self._known_now(), limit)

    async def write_flight_now(self) -> FlightFile:
        raise NoFlightRecorderError

    def page(self) -> bytes:
        return live_page(self.snapshot(), *self.ready())

    def _figures(self) -> dict[str, Any]:
        """For the live page, once a second while somebody looks."""
        windows = tuple(map(window_name, self._settings.analysis.windows))
        ready, reason = self.ready()
        return {
            **figures(self.snapshot(), advice_now(self.ledger, self.names), windows, self.ledger.buckets.labels),
            "ready": ready,
            "reason": reason,
            "server": self._poller.snapshot().server,
        }

    def ready(self) -> tuple[bool, str]:
        if self._control.draining:
            return False, "draining: no new requests are accepted"
        if self._control.ready is not None:
            return self._control.ready, self._control.reason
        up = self._poller.snapshot().up
        if up:
            return True, "upstream is healthy"
        return False, "upstream was not asked yet" if up is None else "upstream does not answer its health check"

    # --- Running ---

    async def run(self) -> None:
        """Until the supervisor is gone, or SIGTERM comes for us alone."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, loop.call_later, _TERM_PATIENCE_S, self._end_unless_draining, stop)
        self._tap_sockets = [socket.socket(fileno=descriptor) for descriptor in self._settings.tap_fds]
        for tap in self._tap_sockets:
            tap.setblocking(False)
        if self._settings.engine_socket:
            self._link.open()
        tasks = [
            asyncio.create_task(self._listen_to_supervisor(stop), name="control"),
            asyncio.create_task(self._beat_for_ever(), name="beat"),
            asyncio.create_task(self._poller.run(), name="poller"),
            asyncio.create_task(self._serve_admin(stop), name="admin"),
        ]
        if self._settings.gpu == "auto":
            tasks.append(asyncio.create_task(self._watch_gpus(), name="gpus"))
        waiting = asyncio.create_task(stop.wait(), name="stop")
        await asyncio.wait([*tasks, waiting], return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in tasks if task.done() and task.exception() is not None]
        for task in (*tasks, waiting):
            task.cancel()
        await asyncio.gather(*tasks, waiting, return_exceptions=True)
        self._link.close()
        await self._fetcher.close()
        await self._page_fetcher.close()
        for task in failed:
            raise task.exception() or RuntimeError(f"{task.get_name()} failed")

    def _end_unless_draining(self, stop: asyncio.Event) -> None:
        """SIGTERM may be for the whole group: then answers drain, and we watch until the supervisor goes."""
        if not self._control.draining:
            stop.set()

    async def _listen_to_supervisor(self, stop: asyncio.Event) -> None:
        control = socket.socket(fileno=self._settings.control_fd)
        control.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=control)
        writer.write(READY_LINE)
        while line := await reader.readline():
            self._take_control(decode_control(line))
        stop.set()
        await asyncio.Event().wait()

    def _take_control(self, control: Control) -> None:
        self._control = control
        if control.upstream is not None and control.upstream.up is not None:
            self._poller.health(control.upstream.up)

    async def _beat_for_ever(self) -> None:
        while True:
            await asyncio.sleep(WATCHED_BEAT_S if self.viewers else BEAT_S)
            await self._take_in()
            self._bury_the_dead()
            self._ask_relays()
            self.beat()

    async def _take_in(self) -> None:
        """Read what there is; while that is old there is more of it, and comes as fast as we read."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _LONGEST_CATCH_UP_S
        vain = packets = 0
        while True:
            more = self.read_taps()
            before, packets = packets, self.taps.packets
            vain = 0 if packets > before else vain + 1
            if not more and not (self.taps.is_behind(self._clock()) and vain < _LOOKS_IN_VAIN and loop.time() < until):
                return
            await asyncio.sleep(0 if more else _CATCH_UP_S)  # the admin server gets its turn

    async def _serve_admin(self, stop: asyncio.Event) -> None:
        channel = socket.socket(fileno=self._settings.admin_fd)
        await serve_passed(self._admin_app(), channel, stop)

    def _admin_app(self) -> Starlette:
        return create_app(
            self, Credentials(self._settings.admin_bearer_token or "", self._settings.admin_basic_auth or "")
        )

    async def _watch_gpus(self) -> None:
        reader = await asyncio.to_thread(GpuMemoryReader)
        while reader.available:
            self._gpus = await asyncio.to_thread(reader.read)
            await asyncio.sleep(_GPU_INTERVAL_S)
        await asyncio.Event().wait()


def main(make: Callable[[ObserverSettings], Observer] = Observer) -> int:
    """Entry of the process: settings as one JSON document on stdin."""
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=ObserverSettings)
    logs.configure(settings.log_level, settings.log_format, "observer")
    observer = make(settings)
    gc.freeze()  # what is loaded by now stays; collections need not look at it again
    uvloop.run(observer.run())
    return 0
