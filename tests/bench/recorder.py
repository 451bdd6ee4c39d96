"""What recording costs the observer: CPU per token with a flight recorder beside without.

python -m tests.bench.recorder          about 40 seconds
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.observer import STEP_NS, STREAMS, Feeder, Record, spread, steps

from prefillwatch.recorder.recorder import Recorder
from prefillwatch.settings.declared import DEFAULTS
from prefillwatch.settings.processes import FlightSettings, RecordSettings
from prefillwatch.settings.views import observer_view
from prefillwatch.units import NS

SECONDS = 3.0
ROUNDS = 3


@dataclass
class Recorded(Feeder):
    """The same observer, recorded in both ways."""

    folder: Path = Path()

    def __post_init__(self) -> None:
        super().__post_init__()
        settings = observer_view(
            DEFAULTS,
            tap_fds=(),
            control_fd=-1,
            upstream="http://127.0.0.1:9",
            gpu="off",
            flight=FlightSettings(str(self.folder), 180.0, 64 << 20, 256 << 20),
            record=RecordSettings(str(self.folder / "bench.pfw")),
        )
        self.recorder = Recorder(settings, self.observation)

    def beat(self) -> None:
        super().beat()
        self.recorder.beat()


def cost(feeder: Feeder, traffic: Iterator[Record]) -> float:
    """Nanoseconds of CPU per token."""
    for record in traffic:
        feeder.take(record)
        if feeder.cpu_ns > SECONDS * NS:
            break
    feeder.check()
    return feeder.cpu_ns / feeder.tokens


def main() -> None:
    cases: dict[str, Callable[[], Iterator[Record]]] = {"spread": lambda: spread(STREAMS, STEP_NS), "steps": steps}
    for name, traffic in cases.items():
        plain, recorded = [], []
        for _ in range(ROUNDS):
            plain.append(cost(Feeder(), traffic()))
            with tempfile.TemporaryDirectory() as folder:
                feeder = Recorded(folder=Path(folder))
                recorded.append(cost(feeder, traffic()))
                feeder.recorder.close()
        off, on = sorted(plain)[ROUNDS // 2], sorted(recorded)[ROUNDS // 2]
        print(f"{name:8} off {off:6.0f} ns per token, recorded {on:6.0f} ({on / off:.2f} x)")


if __name__ == "__main__":
    main()
