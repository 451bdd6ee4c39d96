"""What a core is fed with, each as one value: packets of the taps, news of upstream and the engine, moments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from prefillwatch.core.learned import Learned
from prefillwatch.engine.gpu_memory import GpuMemory
from prefillwatch.engine.kinds import PageSample
from prefillwatch.engine.step_report import StepReport
from prefillwatch.engine.upstream import Scrapes
from prefillwatch.settings.control import Control
from prefillwatch.wire.tap import Packet

#: Of a tap: time, stream, kind and payload.
Record: TypeAlias = tuple[int, int, int, bytes]


class PacketHead(NamedTuple):
    """What a packet of a tap knows of itself, beside its records."""

    epoch: int
    sequence: int
    dropped: int
    relay: int
    records: int
    last_ns: int

    @classmethod
    def of(cls, packet: Packet | FactPacket) -> PacketHead:
        return cls(packet.epoch, packet.sequence, packet.dropped, packet.relay, packet.count, packet.last_ns)


@dataclass(frozen=True, slots=True)
class FactPacket:
    """A packet of a tap as it was recorded, with facts in place of texts (see `wire.recorded`).

    The records in ``lost`` are of exchanges that ended with the relay process before this packet.
    """

    epoch: int
    sequence: int
    dropped: int
    relay: int
    count: int
    last_ns: int
    lost: list[Record]
    records: list[Record]

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)


@dataclass(frozen=True, slots=True)
class TapPacket:
    """A packet of a tap, as it came from the socket."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """Upstream's metrics were read. ``wall_offset``: Unix seconds less seconds of the core's clock."""

    page: PageSample
    wall_offset: float


@dataclass(frozen=True, slots=True)
class Models:
    """The names that upstream serves."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Health:
    """Upstream's health was checked."""

    up: bool


@dataclass(frozen=True, slots=True)
class EngineStep:
    """What the plugin inside an engine says, by the number of its link."""

    link: int
    report: StepReport


@dataclass(frozen=True, slots=True)
class EngineLinks:
    """How the links to plugins go: how many there are, and totals."""

    connected: int = 0
    dropped: int = 0
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class Gpus:
    """Memory by the index of the GPU."""

    memory: dict[str, GpuMemory]


@dataclass(frozen=True, slots=True)
class Beat:
    """A moment passed: what was read so far is to be worked through."""


@dataclass(frozen=True, slots=True)
class Look:
    """Figures are asked for: the same, and what grows with time alone is to be up to date."""


#: All that a core is fed with. `Scrapes` says how reading upstream's metrics goes, `Control` is the supervisor's news.
Input: TypeAlias = (
    TapPacket
    | FactPacket
    | Page
    | Models
    | Health
    | Scrapes
    | EngineStep
    | EngineLinks
    | Gpus
    | Control
    | Beat
    | Look
    | Learned
)
