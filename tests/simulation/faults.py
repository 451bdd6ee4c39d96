"""What can happen that is nobody's prompt. One row is one fault; a run has at most one."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from tests.simulation.engine import Job, Span, spans

#: How the server's page is: as it should; out of reach; seconds late; the same for ever; of a pool that is full anyway.
PageIs = Literal["there", "dead", "late", "stale", "of another pool"]


@dataclass
class Hardships:
    """When what stood still in one run. Milliseconds; bytes for ``hop_bytes``."""

    engine: list[Span] = field(default_factory=list)
    api_server: list[Span] = field(default_factory=list)
    relay: list[Span] = field(default_factory=list)
    readers: list[Span] = field(default_factory=list)  # one of the clients reads nothing
    lost: list[Span] = field(default_factory=list)  # packets of the tap from then
    asked: str = ""  # the stops of the engine were asked for through us, by these words
    hop_bytes: int = 0  # a hop lets go of so many at a time
    hop_every: float = 0.0  # or whatever there is, so often
    hop_spread: float = 0.0  # and one event after another, so far apart; 0: all at once
    together: float = 0.0  # share of events that are read with the next one
    blur: float = 0.0  # events are late by up to so much, each by its own, and so are our times of requests
    page: PageIs = "there"
    clock_steps: float = 0.0  # seconds by which the wall clock jumps back and forth
    host: bool = False  # engine and API server stood still together


@dataclass(frozen=True)
class Fault:
    name: str
    shape: str = "vLLM, asynchronous"  # that it is tried on
    engine: bool = False
    api_server: bool = False
    relay: bool = False
    readers: bool = False
    lost: bool = False
    asked: str = ""
    grows: float = 1.0  # each stop is so many times as long as the one before
    tokenising: float = 0.0  # milliseconds per token, in which the API server does nothing else
    compiles: float = 0.0  # share of prompts that the engine compiles for
    hop_bytes: tuple[int, int] = (0, 0)
    hop_every: Span = (0.0, 0.0)
    hop_spread: float = 0.0
    together: float = 0.0
    blur: float = 0.0  # in clear steps
    page: PageIs = "there"
    clock_steps: float = 0.0
    every: Span = (2500.0, 6000.0)
    length: Span = (300.0, 2500.0)

    def hardships(self, rng: random.Random, base: float, until: float) -> Hardships:
        """``base``: what a step takes."""
        when = list(spans(rng, self.every, self.length, until, grows=self.grows))
        return Hardships(
            engine=when if self.engine else [],
            api_server=when if self.api_server else [],
            relay=when if self.relay else [],
            readers=when if self.readers else [],
            lost=when if self.lost else [],
            asked=self.asked,
            hop_bytes=rng.randint(*self.hop_bytes),
            hop_every=rng.uniform(*self.hop_every),
            hop_spread=self.hop_spread,
            together=self.together,
            blur=self.blur * base,
            page=self.page,
            clock_steps=self.clock_steps,
            host=self.engine and self.api_server,
        )

    def befall(self, jobs: Iterable[Job], hardships: Hardships, rng: random.Random) -> None:
        """What comes with prompts."""
        for job in sorted(jobs, key=lambda job: job.arrives):
            if job.name.startswith("prompt") and rng.random() < self.compiles:
                job.compiles = rng.uniform(400.0, 2000.0)
            busy = self.tokenising * job.prompt
            if busy > 1.0:
                since = max([job.arrives, *(until for _, until in hardships.api_server[-1:])])
                hardships.api_server.append((since, since + busy))


NONE: Final = Fault("none", length=(0.0, 0.0))
_SHORT: Final[Span] = (60.0, 120.0)

#: Tried on minutes in which nothing else happens.
LONG_FAULTS: Final = (
    Fault(
        "engine stopped for half a minute",
        "minutes, nothing special",
        engine=True,
        every=(30_000.0, 60_000.0),
        length=(30_000.0, 50_000.0),
    ),
    Fault(
        "a reader that rests for a minute",
        "minutes, nothing special",
        readers=True,
        every=(10_000.0, 30_000.0),
        length=(40_000.0, 70_000.0),
    ),
)

FAULTS: Final = (
    Fault("engine stopped", engine=True),
    Fault("engine stopped, no page", engine=True, page="dead"),
    Fault("engine stopped, page late", engine=True, page="late"),
    Fault("engine stopped, page stale", engine=True, page="stale"),
    Fault("engine stopped, page of another pool", "SGLang, prefill first", engine=True, page="of another pool"),
    Fault("engine stopped, decode side", "vLLM, decode side", engine=True),
    Fault("garbage collection grows", engine=True, every=(1200.0, 2200.0), length=_SHORT, grows=1.25),
    Fault("compiles for prompts", compiles=0.3),
    Fault("paused through us", engine=True, asked="/pause?mode=keep /resume", length=(1000.0, 4000.0)),
    Fault("sleeps, asked through us", engine=True, asked="/sleep?level=1 /wake_up", length=(1000.0, 4000.0)),
    Fault("weights updated", engine=True, asked="/update_weights -", length=(1500.0, 4000.0)),
    Fault("host stopped", engine=True, api_server=True),
    Fault("API server stopped", api_server=True, length=(1000.0, 3000.0)),
    Fault("API server tokenises", tokenising=0.15),
    Fault("slow readers", readers=True, length=(1000.0, 4000.0)),
    Fault("our own lag", relay=True, length=(1000.0, 3000.0)),
    Fault("starved relay", relay=True, every=(300.0, 1500.0), length=(80.0, 400.0)),
    Fault("lost tap packets", lost=True, every=(2000.0, 4000.0), length=(100.0, 800.0)),
    Fault("clock steps", engine=True, clock_steps=3600.0),
    Fault("hop that buffers by size", hop_bytes=(12_000, 24_000)),
    Fault("hop that buffers by time", hop_every=(1100.0, 2200.0)),
    Fault("hop that buffers, spread bursts", hop_every=(1100.0, 2200.0), hop_spread=0.6),
    Fault("reads that come together", together=0.3),
    Fault("blurred by half a step", blur=0.5),
    Fault("blurred by a step", blur=1.0),
)
