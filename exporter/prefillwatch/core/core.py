"""The core: all that one observer knows of one server. Inputs go in by `feed`, facts come out at its sink.

It has no clock and no sockets: who holds it says what happened and when, a process as it happens, a recording as it
happened then, a test as it pleases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from prefillwatch.analysis.facts import Sink
from prefillwatch.analysis.ledger import Ledger
from prefillwatch.analysis.requests import ModelNames, PromptBuckets, Request
from prefillwatch.analysis.settings import AnalysisSettings
from prefillwatch.analysis.tuning import DEFAULT, Tuning
from prefillwatch.core import engine_ids
from prefillwatch.core.bodies import RequestBodies
from prefillwatch.core.engine_page import engine_page
from prefillwatch.core.engine_steps import EngineSteps
from prefillwatch.core.exchange import Exchange
from prefillwatch.core.inputs import (
    Beat,
    EngineLinks,
    EngineStep,
    FactPacket,
    Gpus,
    Health,
    Input,
    Look,
    Models,
    Page,
    TapPacket,
)
from prefillwatch.core.introduce import introduce
from prefillwatch.core.learned import Learned, learned, recall
from prefillwatch.core.noting import FactSink
from prefillwatch.core.relays import Relays
from prefillwatch.core.reported_steps import ReportedSteps
from prefillwatch.core.view import View
from prefillwatch.engine.gpu_memory import GpuMemory
from prefillwatch.engine.upstream import Scrapes, UpstreamState
from prefillwatch.settings.control import Control, Restarts
from prefillwatch.units import NS
from prefillwatch.wire.tap import End

#: A relay reports every second. One that is none of the processes any more, and silent for so long, is gone.
_GONE_NS: Final = NS * 3 // 2
#: Requests that ended are remembered for what the engine has to say of them, a moment later.
_MOST_ENDED: Final = 256


#: Slots, times and token events of a batch of reads. The lists are not to be kept.
Onlooker = Callable[[list[int], list[int], list[int]], None]


class CoreSink(Sink, Protocol):
    """Takes facts: those of the ledger, and these."""

    def exchange_ended(self, exchange: Exchange, end: End) -> None:
        """Before it is forgotten."""

    def packet_taken(self, age_s: float) -> None:
        """How long ago the last record of a packet was made."""

    def model_forgotten(self, label: str) -> None:
        """Its place goes to another model."""


class Core:
    """`feed` it in order of time."""

    def __init__(
        self,
        settings: AnalysisSettings,
        names: ModelNames,
        sink: CoreSink,
        *,
        cpu_clock: Callable[[], int],
        scrape_interval_s: float = 1.0,
        tuning: Tuning = DEFAULT,
    ) -> None:
        """``cpu_clock``: what this thread has run, in nanoseconds; reading request bodies is bounded by it."""
        self.settings = settings
        self.names = names
        self.buckets = PromptBuckets(settings.prompt_buckets)
        self.fed = 0
        self._ledger = Ledger(settings, sink, tuning)
        self.relays = Relays(self._ledger, names, self._exchange_ended, RequestBodies(cpu_clock=cpu_clock))
        self.upstream = UpstreamState(settings.windows, scrape_interval_s)
        self.engine_steps = EngineSteps(settings.windows)
        self.engine_links = EngineLinks()
        self.gpus: dict[str, GpuMemory] = {}
        self.control = Control(processes=(), draining=False, restarts=Restarts())
        #: Sees each input before it is taken.
        self.tee: Callable[[Input, int], None] | None = None
        self._sink = sink
        self.reported_steps = ReportedSteps(self._ledger.timeline)
        #: The latest.
        self.ended: deque[Request] = deque(maxlen=_MOST_ENDED)
        self._books_ns = 0
        self._takers: dict[type[Any], Callable[[Any, int], None]] = {
            TapPacket: self._tap_packet,
            FactPacket: self._fact_packet,
            Beat: self._beat,
            Look: self._look,
            Page: self._page,
            Models: self._models,
            Health: self._health,
            Scrapes: self._scrapes,
            EngineStep: self._engine_step,
            EngineLinks: self._engine_links,
            Gpus: self._gpus,
            Control: self._control,
            Learned: self._learned,
        }

    def feed(self, given: Input, now_ns: int) -> None:
        """Take what happened. Nothing that came over a tap makes it raise; what a recording says may be a ValueError,
        ArithmeticError or LookupError."""
        self.fed += 1
        if self.tee is not None:
            self.tee(given, now_ns)
        self._takers[type(given)](given, now_ns)

    def known_until(self, now_ns: int) -> int:
        """As of when the books are: now, unless a relay has more to report of the past than it could yet."""
        self._books_ns = max(self._books_ns, self.relays.known_until(now_ns))
        return self._books_ns

    def view(self, now_ns: int) -> View:
        """All that is known now, for whoever shows it."""
        return View(now_ns, self.known_until(now_ns), self, self._ledger, self.fed)

    # --- Who holds it asks ---

    @property
    def in_flight(self) -> int:
        """Requests."""
        return len(self._ledger.requests)

    def watch(self, onlooker: Onlooker | None) -> None:
        """Each batch of reads is shown before it is worked through, until that is ended with None."""
        self._ledger.onlooker = onlooker

    def owner(self, slot: int) -> int | None:
        """The request whose tokens go to this slot now, by its number; for the onlooker, whose reads have slots."""
        request = self._ledger.causes.watch.owner(slot)
        return request.rid if request is not None and request.rid in self._ledger.requests else None

    def learned(self) -> Learned:
        """What a core that begins here has to know of what was before."""
        return learned(self._ledger, self.names)

    def introduce(self, notes: FactSink, now_ns: int, *, senders: bool = False) -> None:
        """Note what is in flight anew, for a recording that begins here; ``senders``: with names of tenants and
        priorities."""
        introduce(notes, now_ns, self.relays.relays, self._ledger, senders=senders)

    def farewells(self, now_ns: int) -> list[TapPacket]:
        """A relay process that died is not always followed by one that could report its end: to be fed in its place."""
        alive = {process.pid for process in self.control.processes}
        return [
            TapPacket(self.relays.farewell(index, now_ns))
            for index, relay in self.relays.relays.items()
            if relay.streams and relay.pid and relay.pid not in alive and now_ns - relay.taken_ns > _GONE_NS
        ]

    def questions(self, index: int, now_ns: int) -> list[bytes]:
        """What this relay is to be asked now, each in a packet."""
        relay = self.relays.relays.get(index)
        return relay.asks(now_ns) if relay is not None else []

    # --- Taps ---

    def _tap_packet(self, given: TapPacket, now_ns: int) -> None:
        packet = self.relays.feed(given.data, now_ns)
        if packet is not None and packet.count:
            self._sink.packet_taken((now_ns - packet.last_ns) / NS)

    def _fact_packet(self, packet: FactPacket, now_ns: int) -> None:
        self.relays.take(packet, now_ns)
        if packet.count:
            self._sink.packet_taken((now_ns - packet.last_ns) / NS)

    def _exchange_ended(self, exchange: Exchange, end: End) -> None:
        if exchange.request.generating:
            self.ended.append(exchange.request)
        self._sink.exchange_ended(exchange, end)

    # --- Moments ---

    def _beat(self, _: Beat, now_ns: int) -> None:
        self._advance(now_ns)
        self.relays.release_over()
        for number, label in self.names.take_retired():
            self._ledger.forget_model(number)
            self._sink.model_forgotten(label)

    def _look(self, _: Look, now_ns: int) -> None:
        self._advance(now_ns)

    def _advance(self, now_ns: int) -> None:
        known_ns = self.known_until(now_ns)
        self.reported_steps.hand_over(known_ns)
        self._ledger.advance(known_ns)

    # --- Upstream, the engine, ourselves ---

    def _page(self, given: Page, now_ns: int) -> None:
        page = given.page
        self.upstream.page(page, now_ns)
        self._ledger.page(engine_page(page, now_ns, given.wall_offset))
        blocks = [engine.block_size for engine in page.engines if engine.block_size]
        looked_up = [each.prefix_queries_total for each in page.engines if each.prefix_queries_total is not None]
        self._ledger.cache_reported(max(blocks, default=None), in_use=any(looked_up) if looked_up else None)

    def _models(self, given: Models, _: int) -> None:
        self.upstream.models = given.names
        self.names.serve(given.names)

    def _health(self, given: Health, _: int) -> None:
        self.upstream.up = given.up

    def _scrapes(self, given: Scrapes, _: int) -> None:
        self.upstream.scrapes = given

    def _engine_step(self, given: EngineStep, now_ns: int) -> None:
        report = given.report
        self.engine_steps.take(given.link, report, now_ns)
        self.reported_steps.add(report, now_ns)
        for finished in report.finished:
            request = engine_ids.find([*self._ledger.requests.values(), *self.ended], finished.request_id)
            if request is not None:
                self._ledger.engines.engine_prefill(request.rid, round(finished.prefill_s * NS))

    def _engine_links(self, given: EngineLinks, _: int) -> None:
        self.engine_links = given

    def _gpus(self, given: Gpus, _: int) -> None:
        self.gpus = given.memory

    def _control(self, given: Control, _: int) -> None:
        self.control = given

    def _learned(self, given: Learned, _: int) -> None:
        """What was learned before a segment of a recording began; only before anything else."""
        recall(given, self._ledger, self.names)
