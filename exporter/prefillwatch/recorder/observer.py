"""The observer while it is recorded: everything that it is told goes to the recorder too, in the order it came."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ClassVar, Final

from prefillwatch import __version__
from prefillwatch.core.noting import FactNotes
from prefillwatch.engine.kinds import PageSample
from prefillwatch.engine.step_report import StepReport
from prefillwatch.export.flight_request import FlightFile, NoFlightRecorderError
from prefillwatch.observer.incidents import wall_offset
from prefillwatch.observer.process import Observer
from prefillwatch.recorder import entries
from prefillwatch.recorder.chunks import ChunkBuilder, Kind
from prefillwatch.recorder.file import Header, frame, opening
from prefillwatch.recorder.flight import ASKED, FlightFolder, FlightTrigger
from prefillwatch.recorder.introduce import introduce
from prefillwatch.recorder.learned import learned
from prefillwatch.recorder.ring import Ring
from prefillwatch.recorder.sink import FileSink
from prefillwatch.settings.processes import ObserverSettings
from prefillwatch.units import NS

#: What is not written within this time, or beyond this size, is lost when the process dies.
_CHUNK_NS: Final = 2 * NS
_CHUNK_BYTES: Final = 1 << 20

log = logging.getLogger(__name__)


class RecordingObserver(Observer):
    """Records facts to the file of the settings, and keeps the last minutes for the flight recorder."""

    texts: ClassVar[bool] = False

    def __init__(
        self,
        settings: ObserverSettings,
        clock: Callable[[], int] = time.monotonic_ns,
        wall_offset: Callable[[], float] = wall_offset,
        incident_prefix: str = "",
    ) -> None:
        super().__init__(settings, clock, wall_offset, incident_prefix)
        self._notes = ChunkBuilder()
        self._chunk_ns = clock()
        self._in_beat = False
        self._state: dict[Kind, bytes] = {}
        self._sink: FileSink | None = None
        self._ring: Ring | None = None
        if settings.record is not None:
            self._sink = FileSink(Path(settings.record.path), opening(self._header(flight=False)))
        if settings.flight is not None and not self.texts:
            self._ring = Ring(settings.flight.window, settings.flight.memory)
            self._ring.begin(self._chunk_ns)
            self._trigger = FlightTrigger()
            self._folder = FlightFolder(Path(settings.flight.dir), settings.flight.disk)
            self._history.heard = lambda document: self._trigger.closed(document, self._clock())
        self._noting = True
        if not self.texts:
            self.taps.notes = FactNotes(self._notes)

    def _header(self, *, flight: bool) -> Header:
        return Header(
            program=__version__,
            started_at=self._clock() / NS + self._wall_offset(),
            wall_offset=self._wall_offset(),
            incident_prefix=self._history.prefix,
            texts=self.texts,
            flight=flight,
            plugin=bool(self._settings.engine_socket),
            analysis=self._settings.analysis,
        )

    # --- What is told ---

    def take_packet(self, data: bytes) -> None:
        if self.texts and self._noting:
            self._notes.entry(Kind.RAW_PACKET, self._clock(), data)
        super().take_packet(data)

    def _advance(self, now_ns: int) -> None:
        self._notes.entry(Kind.BEAT if self._in_beat else Kind.ADVANCE, now_ns)
        super()._advance(now_ns)

    def on_page(self, page: PageSample, at_ns: int) -> None:
        self._note(Kind.PAGE, at_ns, page)
        super().on_page(page, at_ns)

    def on_models(self, names: Sequence[str]) -> None:
        self._note(Kind.MODELS, self._clock(), tuple(names))
        super().on_models(names)

    def on_up(self, up: bool) -> None:
        self._note(Kind.UP, self._clock(), up)
        super().on_up(up)

    def _take_step(self, link: int, report: StepReport, now_ns: int) -> None:
        self._notes.entry(Kind.STEP, now_ns, entries.encode(entries.Step(link, report)))
        super()._take_step(link, report, now_ns)

    def _note(self, kind: Kind, now_ns: int, content: Any) -> None:
        payload = entries.encode(content)
        self._state[kind] = payload
        self._notes.entry(kind, now_ns, payload)

    def _note_changes(self, now_ns: int) -> None:
        """What is not told when it happens, but looked at when somebody asks."""
        upstream = self._poller.snapshot()
        control, link = self._control, self._link
        now: dict[Kind, Any] = {
            Kind.UPSTREAM: entries.Upstream(
                upstream.scrape_success, upstream.scrape_duration, upstream.scrape_failures
            ),
            Kind.CONTROL: entries.Control(control.draining, control.restarts),
            Kind.GPUS: self._gpus,
        }
        if self._settings.engine_socket:
            now[Kind.LINK] = entries.Link(link.connected, link.dropped, link.unreadable)
        for kind, content in now.items():
            if entries.encode(content) != self._state.get(kind):
                self._note(kind, now_ns, content)

    # --- Where it goes ---

    def beat(self) -> None:
        self._in_beat = True
        try:
            super().beat()
        finally:
            self._in_beat = False
        now_ns = self._clock()
        self._note_changes(now_ns)
        if now_ns - self._chunk_ns >= _CHUNK_NS or len(self._notes) >= _CHUNK_BYTES:
            self._close_chunk(now_ns)
        if self._ring is not None:
            why = self._trigger.due(now_ns, self.ledger.causes.incidents.open)
            if why is not None:
                self.write_flight(why)

    def _close_chunk(self, now_ns: int) -> None:
        self._chunk_ns = now_ns
        packed = frame(self._notes.take())
        if self._sink is not None:
            self._sink.put(packed)
        if self._ring is not None:
            self._keep(self._ring, packed, now_ns)
        elif self._sink is None or self._sink.failed:
            self._noting, self.taps.notes = False, None

    def _keep(self, ring: Ring, packed: bytes, now_ns: int) -> None:
        ring.add(packed, now_ns)
        if ring.segment_due(now_ns):
            ring.begin(now_ns)
            self._introduce(now_ns)

    def _introduce(self, now_ns: int) -> None:
        """Begin a segment with what is going on."""
        notes = self._notes
        notes.entry(Kind.BEGIN, now_ns)
        for kind, payload in self._state.items():
            notes.entry(kind, now_ns, payload)
        notes.entry(Kind.LEARNED, now_ns, entries.encode(learned(self.ledger, self.names)))
        introduce(notes, now_ns, self.taps.relays, self.ledger)
        notes.entry(Kind.BEGUN, now_ns)

    def write_flight(self, why: str) -> Future[FlightFile]:
        """Write the last minutes to a file. Raises NoFlightRecorderError where the settings do not ask for one."""
        if self._ring is None:
            raise NoFlightRecorderError
        self._close_chunk(self._clock())
        return self._folder.write(why, [opening(self._header(flight=True)), *self._ring.frames()])

    async def write_flight_now(self) -> FlightFile:
        if self._ring is not None:
            self._trigger.asked(self._clock())
        self.read_taps()
        self._bring_up_to_date(self._clock())
        return await asyncio.wrap_future(self.write_flight(ASKED))

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            self.close()

    def close(self) -> None:
        """Take in and write what is left."""
        while self.read_taps():
            pass
        self.beat()
        self._bring_up_to_date(self._clock())
        if self._ring is not None and (why := self._trigger.pending) is not None:
            self._folder.wait()
            self.write_flight(why)
        self._close_chunk(self._clock())
        if self._sink is not None:
            self._sink.close()
        if self._ring is not None:
            self._folder.wait()


class TextRecordingObserver(RecordingObserver):
    """Records texts too: what clients and upstream sent, as it came."""

    texts: ClassVar[bool] = True


def observer_for(settings: ObserverSettings) -> Observer:
    """The observer that these settings ask for; only where something is recorded does recording cost anything."""
    if settings.record is not None and settings.record.texts:
        if settings.flight is not None:
            log.warning("a recording with texts is made: the flight recorder, which keeps none, is off meanwhile")
        return TextRecordingObserver(settings)
    if settings.record is not None or settings.flight is not None:
        return RecordingObserver(settings)
    return Observer(settings)
