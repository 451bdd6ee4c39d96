"""What can happen that is nobody's prompt. One row is one fault; a run has at most one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.engine import Span, spans


@dataclass
class Hardships:
    """When what stood still in one run. Milliseconds; bytes for ``hop_bytes``."""

    engine: list[Span] = field(default_factory=list)
    api_server: list[Span] = field(default_factory=list)
    relay: list[Span] = field(default_factory=list)
    readers: list[Span] = field(default_factory=list)  # one of the clients reads nothing
    lost: list[Span] = field(default_factory=list)  # packets of the tap from then
    hop_bytes: int = 0  # a hop lets go of so many at a time
    hop_every: float = 0.0  # or whatever there is, so often
    hop_spread: float = 0.0  # and one event after another, so far apart; 0: all at once
    page: bool = True  # the server's metrics are within reach


@dataclass(frozen=True)
class Fault:
    name: str
    engine: bool = False
    api_server: bool = False
    relay: bool = False
    readers: bool = False
    lost: bool = False
    hop_bytes: tuple[int, int] = (0, 0)
    hop_every: Span = (0.0, 0.0)
    hop_spread: float = 0.0
    page: bool = True
    every: Span = (4000.0, 9000.0)
    length: Span = (300.0, 2500.0)

    def hardships(self, rng: random.Random, until: float) -> Hardships:
        when = list(spans(rng, self.every, self.length, until))
        return Hardships(
            when if self.engine else [],
            when if self.api_server else [],
            when if self.relay else [],
            when if self.readers else [],
            when if self.lost else [],
            rng.randint(*self.hop_bytes),
            rng.uniform(*self.hop_every),
            self.hop_spread,
            self.page,
        )


NONE: Final = Fault("none", length=(0.0, 0.0))

FAULTS: Final = (
    Fault("engine stopped", engine=True),
    Fault("engine stopped, no page", engine=True, page=False),
    Fault("host stopped", engine=True, api_server=True),
    Fault("API server stopped", api_server=True, length=(1000.0, 3000.0)),
    Fault("slow readers", readers=True, length=(1000.0, 4000.0)),
    Fault("our own lag", relay=True, length=(1000.0, 3000.0)),
    Fault("lost tap packets", lost=True, every=(2000.0, 4000.0), length=(100.0, 800.0)),
    Fault("hop that buffers by size", hop_bytes=(12_000, 24_000)),
    Fault("hop that buffers by time", hop_every=(1100.0, 2200.0)),
    Fault("hop that buffers, spread bursts", hop_every=(1100.0, 2200.0), hop_spread=0.6),
)
