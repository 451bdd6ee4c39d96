"""Packets of a recording on their way through the observer: facts where a tap has texts."""

from __future__ import annotations

from typing import ClassVar

from prefillwatch.observer.exchange import Exchange
from prefillwatch.observer.taps import RelayTap, TapReader
from prefillwatch.recorder.chunks import FactPacket
from prefillwatch.recorder.facts import ToldExchange
from prefillwatch.wire.tap import Packet


class ToldTaps(TapReader):
    """Takes packets that `FactNotes` noted."""

    exchange_type: ClassVar[type[Exchange]] = ToldExchange

    def _follow(self, relay: RelayTap, packet: Packet, now_ns: int) -> None:
        if isinstance(packet, FactPacket):
            self._records(relay, packet.lost)
        super()._follow(relay, packet, now_ns)
