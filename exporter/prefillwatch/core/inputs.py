"""What the core is told, beside the packets of the taps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

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

    The records in ``lost`` tell of exchanges that ended with the relay process before this packet.
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
