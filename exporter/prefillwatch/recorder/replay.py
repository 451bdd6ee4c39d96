"""Plays a recording: the observer itself, with the recording's clock, is told again what it was told then."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import msgspec

from prefillwatch.core.bodies import RequestBodies
from prefillwatch.core.inputs import FactPacket
from prefillwatch.engine.kinds import PageSample
from prefillwatch.engine.poller import UpstreamPoller
from prefillwatch.export.admin_server import serve_admin
from prefillwatch.observer.engine_link import EngineLink
from prefillwatch.observer.process import Observer
from prefillwatch.observer.publish import Publisher
from prefillwatch.recorder import entries
from prefillwatch.recorder.chunks import Entry, Kind
from prefillwatch.recorder.file import Header, RecordingError
from prefillwatch.recorder.learned import recall
from prefillwatch.recorder.totals import GapTotals, TotallingPublisher
from prefillwatch.settings.control import Control
from prefillwatch.settings.declared import DEFAULTS
from prefillwatch.settings.views import observer_view
from prefillwatch.units import NS


class ReplayClock:
    """The time of the entry that is played."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class ToldUpstream(UpstreamPoller):
    """Is told what upstream said then. Asks nobody."""

    def page(self, page: PageSample) -> None:
        self._succeeded(page)

    def names(self, names: tuple[str, ...]) -> None:
        self._models = names
        if self._listener is not None:
            self._listener.on_models(names)

    def went(self, told: entries.Upstream) -> None:
        self._success, self._duration, self._failures = told.success, told.duration, told.failures


class ToldLink(EngineLink):
    """Tells what the link to the plugin had counted."""

    told = entries.Link(0, 0, 0)

    @property
    def connected(self) -> int:
        return self.told.connected

    @property
    def dropped(self) -> int:
        return self.told.dropped


class ReplayObserver(Observer):
    """Everything one observer process held then. `play` every entry in turn."""

    poller_type: ClassVar[type[UpstreamPoller]] = ToldUpstream
    publisher_type: ClassVar[type[Publisher]] = TotallingPublisher

    def __init__(self, header: Header, clock: ReplayClock) -> None:
        """Raises RecordingError."""
        settings = observer_view(
            DEFAULTS,
            tap_fds=(),
            control_fd=-1,
            upstream="http://127.0.0.1:9",  # nobody is asked
            gpu="off",
            engine_socket="replayed" if header.plugin else "",
            analysis=header.analysis,
        )
        try:
            super().__init__(settings, clock, lambda: header.wall_offset, header.incident_prefix)
        except (ValueError, ArithmeticError) as error:
            raise RecordingError(f"its header is damaged, and nothing can be played: {error}") from error
        self.taps.bodies = RequestBodies(cpu_clock=lambda: 0)  # nobody waits, so there is time for all of them
        self._replay_clock = clock
        self._history.log = False
        self._link = self._told_link = ToldLink("", self._engine_step)
        self._introducing = False
        self._skipping = False
        self._played_any = False
        self._players: dict[int, Callable[[Any], None]] = {
            Kind.PACKET: self._play_packet,
            Kind.RAW_PACKET: self.take_packet,
            Kind.BEAT: lambda _: self.beat(),
            Kind.ADVANCE: lambda _: self._play_scrape(),
            Kind.PAGE: self._told_upstream.page,
            Kind.MODELS: self._told_upstream.names,
            Kind.UP: self._told_upstream.health,
            Kind.UPSTREAM: self._told_upstream.went,
            Kind.STEP: lambda step: self._take_step(step.link, step.report, clock.now_ns),
            Kind.GPUS: self._play_gpus,
            Kind.CONTROL: self._play_control,
            Kind.LINK: self._play_link,
            Kind.LEARNED: lambda told: recall(told, self.ledger, self.names),
        }

    @property
    def gap_totals(self) -> GapTotals:
        """All gaps so far, of all models."""
        assert isinstance(self._publisher, TotallingPublisher)
        return self._publisher.totals

    @property
    def _told_upstream(self) -> ToldUpstream:
        assert isinstance(self._poller, ToldUpstream)
        return self._poller

    def play(self, entry: Entry) -> None:
        """Raises RecordingError when there is nonsense in it."""
        self._replay_clock.now_ns = max(self._replay_clock.now_ns, entry.now_ns)
        if entry.kind == Kind.BEGIN:
            # What is introduced is known already, unless this is where the recording begins.
            self._introducing, self._skipping = True, self._played_any
        elif entry.kind == Kind.BEGUN:
            self._introducing = self._skipping = False
        elif not self._skipping:
            self._played_any = True
            self._play(entry)

    def _play(self, entry: Entry) -> None:
        player = self._players.get(entry.kind)
        if player is None:
            raise RecordingError(f"an entry of unknown kind {entry.kind}; play it with a newer release of prefillwatch")
        content = entry.content
        try:
            if entry.kind not in _BARE:
                content = entries.decode(entry.kind, content)
            player(content)
        except (msgspec.DecodeError, ValueError, ArithmeticError, LookupError) as error:
            # No entry that was written by us does that, and a checksum tells if it was changed by chance.
            raise RecordingError(f"an entry of kind {entry.kind} cannot be read: {error}") from error

    def _play_packet(self, packet: FactPacket | bytes) -> None:
        if isinstance(packet, bytes):
            self.taps.unreadable += 1
            return
        now_ns = self._replay_clock.now_ns
        self.taps.take(packet, now_ns)
        if packet.count and not self._introducing:
            self._delay.observe((now_ns - packet.last_ns) / NS)

    def _play_scrape(self) -> None:
        """Of what a look at the figures did then, all that leaves a trace in the books."""
        super()._bring_up_to_date(self._replay_clock.now_ns)

    def _bring_up_to_date(self, now_ns: int) -> None:
        """Somebody looks at the replay. That leaves no trace: only those who looked then are in the figures."""

    def _play_gpus(self, gpus: dict[str, Any]) -> None:
        self._gpus = gpus

    def _play_control(self, told: entries.Control) -> None:
        self._control = Control(processes=(), draining=told.draining, restarts=told.restarts)

    def _play_link(self, told: entries.Link) -> None:
        self._told_link.told = told
        self._told_link.unreadable = told.unreadable

    def end(self) -> None:
        """There is no more: viewers are told, and time stands."""
        for message in self.live.end(self._clock()):
            self.viewers.send(message)

    async def serve(self, listeners: Sequence[socket.socket], stop: asyncio.Event) -> None:
        """The page, the metrics and the API, until ``stop`` is set."""
        await serve_admin(self._admin_app(), listeners, stop)


#: Their content is no encoded document.
_BARE: Final = frozenset({Kind.PACKET, Kind.RAW_PACKET, Kind.BEAT, Kind.ADVANCE})
