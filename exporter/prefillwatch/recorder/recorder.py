"""Writes the inputs of a core, in the order in which they came, to a file or to a ring of the last minutes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

import msgspec

from prefillwatch import __version__
from prefillwatch.core.inputs import (
    Beat,
    EngineLinks,
    EngineStep,
    Gpus,
    Health,
    Input,
    Look,
    Models,
    Page,
    TapPacket,
)
from prefillwatch.core.noting import FactNotes
from prefillwatch.engine.upstream import Scrapes
from prefillwatch.export.flight_request import FlightFile, NoFlightRecorderError
from prefillwatch.observer.observation import Observation
from prefillwatch.recorder import entries
from prefillwatch.recorder.chunks import ChunkBuilder, Kind
from prefillwatch.recorder.file import Header, frame, opening
from prefillwatch.recorder.flight import ASKED, FlightFolder, FlightTrigger
from prefillwatch.recorder.segments import Ring
from prefillwatch.recorder.sink import FileSink
from prefillwatch.settings.control import Control
from prefillwatch.settings.processes import ObserverSettings
from prefillwatch.units import NS

#: What is not written within this time, or beyond this size, is lost when the process dies.
_CHUNK_NS: Final = 2 * NS
_CHUNK_BYTES: Final = 1 << 20

#: What is written of each input but packets: the kind of the entry, and what it holds; None: nothing.
_KINDS: Final[dict[type[Any], tuple[Kind, Callable[[Any], Any] | None]]] = {
    Beat: (Kind.BEAT, None),
    Look: (Kind.ADVANCE, None),
    EngineStep: (Kind.STEP, lambda given: entries.Step(given.link, given.report)),
    Page: (Kind.PAGE, lambda given: given.page),
    Models: (Kind.MODELS, lambda given: given.names),
    Health: (Kind.UP, lambda given: given.up),
    Scrapes: (Kind.UPSTREAM, lambda given: entries.Upstream(given.success, given.duration, given.failures)),
    Control: (Kind.CONTROL, lambda given: entries.Control(given.draining, given.restarts)),
    Gpus: (Kind.GPUS, lambda given: given.memory),
    EngineLinks: (Kind.LINK, lambda given: entries.Link(given.connected, given.dropped, given.unreadable)),
}
#: State: the newest of each of these begins each segment.
_STATE: Final = frozenset({Kind.PAGE, Kind.MODELS, Kind.UP, Kind.UPSTREAM, Kind.CONTROL, Kind.GPUS, Kind.LINK})

log = logging.getLogger(__name__)


class Recorder:
    """Records to the file of the settings, and keeps the last minutes for the flight recorder.

    Facts, unless the settings ask for texts too: what clients and upstream sent, as it came.
    """

    def __init__(self, settings: ObserverSettings, observation: Observation) -> None:
        self._settings = settings
        self._observation = observation
        self._clock = observation.clock
        self._core = observation.core
        self._texts = settings.record is not None and settings.record.texts
        #: Names of tenants and priorities: what goes to both files is what both were asked to keep.
        self._senders = (settings.record is None or settings.record.tenants) and (
            settings.flight is None or settings.flight.tenants
        )
        self._notes = ChunkBuilder()
        self._chunk_ns = self._clock()
        self._state: dict[Kind, bytes] = {}  # the newest entry of each kind that says how things are
        self._sink: FileSink | None = None
        self._ring: Ring | None = None
        if settings.record is not None:
            self._sink = FileSink(Path(settings.record.path), opening(self._header(flight=False)))
        if settings.flight is not None and self._texts:
            log.warning("a recording with texts is made: the flight recorder, which keeps none, is off meanwhile")
        elif settings.flight is not None:
            self._ring = Ring(settings.flight.window, settings.flight.memory)
            self._ring.begin(self._chunk_ns)
            self._trigger = FlightTrigger()
            self._folder = FlightFolder(Path(settings.flight.dir), settings.flight.disk)
            observation.history.heard.append(lambda incident, _: self._trigger.closed(incident, self._clock()))
            observation.write_flight = self._write_asked
        self._core.tee = self.take
        if not self._texts:
            self._core.relays.notes = FactNotes(self._notes, senders=self._senders)

    def _header(self, *, flight: bool) -> Header:
        wall_offset = self._observation.wall_offset()
        analysis = self._settings.analysis
        if not self._senders:
            analysis = msgspec.structs.replace(analysis, max_tenants=0, priorities=False)
        return Header(
            program=__version__,
            started_at=self._clock() / NS + wall_offset,
            wall_offset=wall_offset,
            incident_prefix=self._observation.history.prefix,
            texts=self._texts,
            flight=flight,
            plugin=bool(self._settings.engine_socket),
            analysis=analysis,
        )

    # --- What comes ---

    def take(self, given: Input, now_ns: int) -> None:
        """An input of the core. The facts of a packet come by way of the core's notes."""
        if isinstance(given, TapPacket):
            if self._texts:
                self._notes.entry(Kind.RAW_PACKET, now_ns, given.data)
        elif type(given) in _KINDS:
            kind, content = _KINDS[type(given)]
            payload = b"" if content is None else entries.encode(content(given))
            self._notes.entry(kind, now_ns, payload)
            if kind in _STATE:
                self._state[kind] = payload

    # --- Where it goes ---

    def beat(self) -> None:
        """After each beat of the observation."""
        now_ns = self._clock()
        if now_ns - self._chunk_ns >= _CHUNK_NS or len(self._notes) >= _CHUNK_BYTES:
            self._close_chunk(now_ns)
        if self._ring is not None:
            why = self._trigger.due(now_ns, self._observation.view().incident_heads)
            if why is not None:
                self.write_flight(why)

    def _close_chunk(self, now_ns: int) -> None:
        self._chunk_ns = now_ns
        packed = frame(self._notes.take())
        if self._sink is not None:
            self._sink.put(packed)
        if self._ring is not None:
            self._ring.add(packed, now_ns)
            if self._ring.segment_due(now_ns):
                self._ring.begin(now_ns)
                self._introduce(now_ns)
        elif self._sink is None or self._sink.failed:
            self._core.tee = self._core.relays.notes = None

    def _introduce(self, now_ns: int) -> None:
        """Begin a segment with what is going on."""
        notes = self._notes
        notes.entry(Kind.BEGIN, now_ns)
        for kind, payload in self._state.items():
            notes.entry(kind, now_ns, payload)
        notes.entry(Kind.LEARNED, now_ns, entries.encode(self._core.learned()))
        self._core.introduce(notes, now_ns, senders=self._senders)
        notes.entry(Kind.BEGUN, now_ns)

    def write_flight(self, why: str) -> Future[FlightFile]:
        """Write the last minutes to a file. Raises NoFlightRecorderError where the settings do not ask for one."""
        if self._ring is None:
            raise NoFlightRecorderError
        self._close_chunk(self._clock())
        return self._folder.write(why, [opening(self._header(flight=True)), *self._ring.frames()])

    async def _write_asked(self) -> FlightFile:
        self._trigger.asked(self._clock())
        self._observation.take_in()
        self._observation.feed(Look())
        return await asyncio.wrap_future(self.write_flight(ASKED))

    def close(self) -> None:
        """Write what is left."""
        if self._ring is not None and (why := self._trigger.pending) is not None:
            self._folder.wait()
            self.write_flight(why)
        self._close_chunk(self._clock())
        if self._sink is not None:
            self._sink.close()
        if self._ring is not None:
            self._folder.wait()


def recorder_for(settings: ObserverSettings, observation: Observation) -> Recorder | None:
    """What the settings ask for; only where something is recorded does recording cost anything."""
    if settings.record is None and settings.flight is None:
        return None
    return Recorder(settings, observation)
