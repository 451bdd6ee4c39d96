"""What looking costs the observer: a scrape, `/api/state`, `/api/incidents`, `/api/predict`, a frame of the live page;
and a beat.

    python -m tests.bench.look                  this checkout
    python -m tests.bench.look --before DIR     and the one in DIR, in turns with it

Each side runs in a process of its own, several times in turns; the figures are the medians of all runs, in CPU time.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable

from tests.bench.observer import DATA, chunk, open_streams
from tests.bench.turns import in_turns

from prefillwatch.core.inputs import Models, TapPacket
from prefillwatch.observer.observation import Observation
from prefillwatch.settings.declared import DEFAULTS
from prefillwatch.settings.views import analysis_view
from prefillwatch.units import MS, NS
from prefillwatch.wire.tap import PacketBuilder

STREAMS = (256, 2000, 10_000)
ROUNDS = 3
LOOKS = 9
STEP_NS = 100 * MS


def main() -> None:
    in_turns("tests.bench.look", measure, ROUNDS)


def measure() -> dict[str, float]:
    """Milliseconds of CPU by what was done."""
    figures: dict[str, float] = {}
    for streams in STREAMS:
        scene = Scene(streams)
        spent: dict[str, list[float]] = defaultdict(list)
        for _ in range(LOOKS):
            scene.step()
            spent["beat"].append(cpu_ms(scene.observation.beat))
            spent["scrape"].append(cpu_ms(scene.observation.snapshot))
            spent["/api/state"].append(cpu_ms(scene.observation.state))
            spent["/api/incidents"].append(cpu_ms(scene.incidents))
            spent["100 of /api/predict"].append(cpu_ms(scene.predict))
        scene.observation.live.open()
        for _ in range(LOOKS):
            for _ in range(3):
                scene.step()
            scene.observation.beat()
            spent["frame of /api/live"].append(cpu_ms(scene.frame))
        figures |= {f"{streams:,} streams: {name}": statistics.median(each) for name, each in spent.items()}
    return figures


class Scene:
    """So many streams with a token each every 100 ms, on a clock of its own."""

    def __init__(self, streams: int) -> None:
        self._now = NS
        self._streams, self._number = streams, 0
        self.observation = Observation(analysis_view(DEFAULTS), clock=lambda: self._now)
        self.observation.feed(Models(("bench",)))
        self._builder = PacketBuilder(relay=0, epoch=1)
        for record in open_streams(self._now, range(1, streams + 1)):
            self._builder.add(*record)
        for _ in range(5):
            self.step()
            self.observation.beat()

    def step(self) -> None:
        self._now += STEP_NS
        self._number += 1
        for stream in range(1, self._streams + 1):
            self._builder.add(self._now - MS, stream, DATA, chunk(stream, self._number))
        for packet in self._builder.take_all():
            self.observation.feed(TapPacket(packet))

    def predict(self) -> None:
        """As a router asks, for each of its requests."""
        for tokens in range(100, 10_100, 100):
            self.observation.predict(tokens, 0, None)

    def incidents(self) -> None:
        self.observation.incidents(100)

    def frame(self) -> None:
        """Without the figures, which cost a scrape, once a second."""
        if not self.observation.live.news(self._now):
            raise AssertionError("no frame was due")


def cpu_ms(work: Callable[[], object]) -> float:
    before = time.thread_time()
    work()
    return (time.thread_time() - before) * 1e3


if __name__ == "__main__":
    main()
