"""An observer that is recorded while a scene is played to it, and the recording played back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard
from tests.core.script import Relay, ns

from prefillwatch.export.exposition import render
from prefillwatch.observer.process import Observer
from prefillwatch.recorder.file import RecordingFile
from prefillwatch.recorder.observer import RecordingObserver, TextRecordingObserver
from prefillwatch.recorder.replay import ReplayClock, ReplayObserver
from prefillwatch.settings.declared import DEFAULTS
from prefillwatch.settings.processes import FlightSettings, RecordSettings
from prefillwatch.settings.views import observer_view
from prefillwatch.wire.tap import Packet

WALL_OFFSET = 1_700_000_000.0


class _Taps:
    """Where a scripted relay puts its packets."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def feed(self, data: bytes, now_ns: int) -> Packet | None:
        self._live.packets.append(data)
        self._live.observer.take_packet(data)
        return None


@dataclass
class Live:
    """Takes what a scripted relay tells, with a beat every 100 ms and a scrape every second."""

    folder: Path
    texts: bool = False
    flight: FlightSettings | None = None
    record: bool = True
    plain: bool = False
    served: tuple[str, ...] = ("m", "tiny")
    now_ms: float = 0.0
    packets: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.path = self.folder / "recording.pfw"
        settings = observer_view(
            DEFAULTS,
            tap_fds=(),
            control_fd=-1,
            upstream="http://127.0.0.1:9",
            gpu="off",
            engine_socket="/nowhere",
            record=RecordSettings(str(self.path), self.texts) if self.record else None,
            flight=self.flight,
        )
        kind = Observer if self.plain else TextRecordingObserver if self.texts else RecordingObserver
        self.observer: Any = kind(settings, lambda: ns(self.now_ms), lambda: WALL_OFFSET, "scene")
        self.taps = _Taps(self)
        if self.served:
            self.observer.on_models(self.served)
        self.relay = Relay(self)  # type: ignore[arg-type]

    def advance(self, to_ms: float) -> None:
        while self.now_ms < to_ms:
            self.now_ms = min((self.now_ms // 100 + 1) * 100, to_ms)
            self.observer.beat()
            if self.now_ms % 1000 == 0:
                self.observer.snapshot()

    def close(self) -> None:
        if isinstance(self.observer, RecordingObserver):
            self.observer.close()


def played(path: Path) -> ReplayObserver:
    """The observer that has seen all of a recording."""
    file = RecordingFile(path)
    observer = ReplayObserver(file.header, ReplayClock())
    for entry in file.entries():
        observer.play(entry)
    file.close()
    return observer


def page(observer: Observer) -> list[str]:
    """The metrics, but for the figures of our own processes, in an order of their own: it is by first appearance."""
    lines = render(observer.snapshot())[0].decode().splitlines()
    own = ("#", "prefillwatch_process_", "prefillwatch_exposed_series")
    return sorted(line for line in lines if not line.startswith(own))


def incidents(observer: Observer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(json.dumps(observer.incidents(1000)))
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
