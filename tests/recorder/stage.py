"""An observer that is recorded while a scene is played to it, and the recording played back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard
from tests.core.script import Relay, ns

from prefillwatch.core.inputs import Look, Models, TapPacket
from prefillwatch.export.exposition import render
from prefillwatch.observer.observation import Observation
from prefillwatch.recorder.file import RecordingFile
from prefillwatch.recorder.recorder import Recorder
from prefillwatch.recorder.replay import Replay, ReplayClock
from prefillwatch.settings.declared import DEFAULTS
from prefillwatch.settings.processes import FlightSettings, RecordSettings
from prefillwatch.settings.sources import load
from prefillwatch.settings.views import observer_view

WALL_OFFSET = 1_700_000_000.0


@dataclass
class Live:
    """Takes what a scripted relay tells, with a beat every 100 ms and a scrape every second."""

    folder: Path
    texts: bool = False
    flight: FlightSettings | None = None
    record: bool = True
    plain: bool = False
    served: tuple[str, ...] = ("m", "tiny")
    tenants: bool = False  # are told apart
    keeps_tenants: bool = False
    now_ms: float = 0.0
    packets: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.path = self.folder / "recording.pfw"
        settings = observer_view(
            load({"tenant_header": "x-tenant", "priorities": "true"}, {}) if self.tenants else DEFAULTS,
            tap_fds=(),
            control_fd=-1,
            upstream="http://127.0.0.1:9",
            gpu="off",
            engine_socket="/nowhere",
            record=RecordSettings(str(self.path), self.texts, self.keeps_tenants) if self.record else None,
            flight=self.flight,
        )
        self.observation = Observation(
            settings.analysis, lambda: ns(self.now_ms), lambda: WALL_OFFSET, "scene", plugin=True
        )
        self.recorder = None if self.plain else Recorder(settings, self.observation)
        if self.served:
            self.observation.feed(Models(self.served))
        self.relay = Relay(self)

    def feed(self, given: TapPacket) -> None:
        self.packets.append(given.data)
        self.observation.feed(given)

    def beat(self) -> None:
        self.observation.beat()
        if self.recorder is not None:
            self.recorder.beat()

    def advance(self, to_ms: float) -> None:
        while self.now_ms < to_ms:
            self.now_ms = min((self.now_ms // 100 + 1) * 100, to_ms)
            self.beat()
            if self.now_ms % 1000 == 0:
                self.observation.snapshot()

    def close(self) -> None:
        if self.recorder is not None:
            self.beat()
            self.observation.feed(Look())
            self.recorder.close()


def played(path: Path, *, senders: bool = False) -> Observation:
    """What is shown when all of a recording was played; ``senders``: with tenants and priorities."""
    file = RecordingFile(path)
    replay = Replay(file.header, ReplayClock(), senders=senders)
    for entry in file.entries():
        replay.play(entry)
    file.close()
    return replay.observation


def page(observation: Observation) -> list[str]:
    """The metrics, but for the figures of our own processes, in an order of their own: it is by first appearance."""
    lines = render(observation.snapshot())[0].decode().splitlines()
    own = ("#", "prefillwatch_process_", "prefillwatch_exposed_series")
    return sorted(line for line in lines if not line.startswith(own))


def incidents(observation: Observation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(json.dumps(observation.incidents(1000)))
    return found


def unpacked(path: Path) -> list[bytes]:
    """Header and chunks of a recording, taken apart by their own description."""
    data, chunks = path.read_bytes(), []
    header = int.from_bytes(data[10:14], "little")
    position = 14 + header
    chunks.append(data[:position])
    while position < len(data):
        length = int.from_bytes(data[position : position + 4], "little")
        chunks.append(zstandard.decompress(data[position + 4 : position + 4 + length]))
        position += 4 + length
    return chunks
