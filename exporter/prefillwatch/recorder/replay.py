"""Plays a recording: a core is fed again what one was fed then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from prefillwatch.core.inputs import Beat, EngineLinks, EngineStep, Gpus, Health, Input, Look, Models, Page, TapPacket
from prefillwatch.engine.upstream import Scrapes
from prefillwatch.observer.observation import Observation
from prefillwatch.recorder import entries
from prefillwatch.recorder.chunks import Entry, Kind
from prefillwatch.recorder.file import Header, RecordingError
from prefillwatch.recorder.totals import GapTotals
from prefillwatch.settings.control import Control


class ReplayClock:
    """The time of the entry that is played."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class Replay:
    """All that is shown of a recording. `play` every entry in turn."""

    def __init__(self, header: Header, clock: ReplayClock, *, senders: bool = False) -> None:
        """``senders``: figures by tenant and priority, where the recording has any. Raises RecordingError."""
        analysis = header.analysis
        if not senders:
            analysis = msgspec.structs.replace(analysis, max_tenants=0, priorities=False)
        try:
            self.observation = Observation(
                analysis,
                clock,
                lambda: header.wall_offset,
                header.incident_prefix,
                plugin=header.plugin,
                cpu_clock=lambda: 0,  # nobody waits for a replay, so there is time for all bodies
            )
        except (ValueError, ArithmeticError) as error:
            raise RecordingError(f"its header is damaged, and nothing can be played: {error}") from error
        self.observation.looks_count = False
        self.observation.history.log = False
        self.gap_totals = GapTotals()
        self.observation.publisher.gaps_heard = self.gap_totals.add
        self._clock = clock
        self._skipping = False
        self._played_any = False
        self._inputs: dict[int, Callable[[Any], Input]] = {
            Kind.PACKET: lambda packet: packet or TapPacket(b""),  # nothing: one that could not be read
            Kind.RAW_PACKET: TapPacket,
            Kind.BEAT: lambda _: Beat(),
            Kind.ADVANCE: lambda _: Look(),
            Kind.PAGE: lambda page: Page(page, header.wall_offset),
            Kind.MODELS: Models,
            Kind.UP: Health,
            Kind.UPSTREAM: lambda noted: Scrapes(noted.success, noted.duration, noted.failures),
            Kind.STEP: lambda step: EngineStep(step.link, step.report),
            Kind.GPUS: Gpus,
            Kind.CONTROL: lambda noted: Control(processes=(), draining=noted.draining, restarts=noted.restarts),
            Kind.LINK: lambda noted: EngineLinks(noted.connected, noted.dropped, noted.unreadable),
            Kind.LEARNED: lambda learned: learned,
        }

    def play(self, entry: Entry) -> None:
        """Raises RecordingError when there is nonsense in it."""
        self._clock.now_ns = max(self._clock.now_ns, entry.now_ns)
        if entry.kind == Kind.BEGIN:
            # What is introduced is known already, unless this is where the recording begins.
            self._skipping = self._played_any
        elif entry.kind == Kind.BEGUN:
            self._skipping = False
        elif not self._skipping:
            self._played_any = True
            self._play(entry)

    def _play(self, entry: Entry) -> None:
        if entry.kind == Kind.LEARNED_BEFORE_3:
            return  # verdicts begin with nothing learned then, as at a start
        make = self._inputs.get(entry.kind)
        if make is None:
            raise RecordingError(f"an entry of unknown kind {entry.kind}; play it with a newer release of prefillwatch")
        content = entry.content
        try:
            if entry.kind not in _BARE:
                content = entries.decode(entry.kind, content)
            if entry.kind == Kind.BEAT:
                self.observation.beat()
            else:
                self.observation.feed(make(content))
        except (msgspec.DecodeError, ValueError, ArithmeticError, LookupError) as error:
            # No entry that was written by us does that, and a checksum shows if it was changed by chance.
            raise RecordingError(f"an entry of kind {entry.kind} cannot be read: {error}") from error

    def end(self) -> None:
        """The recording is over: viewers hear of it, and time stands still."""
        for message in self.observation.live.end():
            self.observation.viewers.send(message)


#: Their content is no encoded document.
_BARE: Final = frozenset({Kind.PACKET, Kind.RAW_PACKET, Kind.BEAT, Kind.ADVANCE})
