"""The observer's end of the taps: packets of all relays become calls on exchanges.

A packet's sequence number shows what was dropped before it; every stream of that relay then has a hole, across which
nothing is measured. A new epoch shows that the relay process is a new one: the streams of the old one are lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Final

import msgspec

from prefillwatch.analysis.ledger import LONG_TEXT, Ledger
from prefillwatch.analysis.lifecycle import LifecycleError
from prefillwatch.analysis.models import ModelNames
from prefillwatch.observer.bodies import RequestBodies
from prefillwatch.observer.exchange import Exchange
from prefillwatch.observer.usual import Record, UsualReads
from prefillwatch.wire.tap import End, Finish, Kind, Packet, RelayStats, RequestHead, decode_payload

#: More streams of one relay than this are not followed; they still pass through unharmed.
MAX_EXCHANGES: Final = 65_536


_DATA: Final = int(Kind.DATA)
_DATA_PART: Final = int(Kind.DATA_PART)


@dataclass(slots=True)
class RelayTap:
    """What is known of one relay, across its restarts. ``dropped`` and ``lost`` are totals over all its processes."""

    epoch: int = -1
    sequence: int = 0
    packets: int = 0
    dropped: int = 0
    dropped_before: int = 0
    lost_streams: int = 0
    retries: int = 0
    usage_refused: int = 0
    displaced: int = 0  # clients that had to leave for others
    lag_counts: list[int] = field(default_factory=list)  # of all processes of this relay together
    lag_sum: float = 0.0
    stats: RelayStats | None = None
    streams: dict[int, Exchange] = field(default_factory=dict)
    usual: UsualReads = field(default_factory=UsualReads)

    def take_stats(self, stats: RelayStats) -> None:
        """Running totals of the present process; ours go on over restarts."""
        before = self.stats
        if len(self.lag_counts) != len(stats.lag_counts):
            self.lag_counts = [0] * len(stats.lag_counts)
        for bucket, count in enumerate(stats.lag_counts):
            self.lag_counts[bucket] += count - (before.lag_counts[bucket] if before else 0)
        self.lag_sum += stats.lag_sum - (before.lag_sum if before else 0.0)
        self.retries += stats.retries - (before.retries if before else 0)
        self.usage_refused += stats.usage_refused - (before.usage_refused if before else 0)
        self.displaced += stats.places_given - (before.places_given if before else 0)
        self.stats = stats


class TapReader:
    """Works packets through, relay by relay. Pure of sockets: somebody else reads those."""

    exchange_type: ClassVar[type[Exchange]] = Exchange

    def __init__(self, ledger: Ledger, names: ModelNames, ended: Callable[[Exchange, End], None]) -> None:
        """``ended`` is told of every exchange that is over, before it leaves."""
        self.relays: dict[int, RelayTap] = {}
        self.bodies = RequestBodies()
        self.unreadable = 0  # packets and records that could not be understood
        self.out_of_order = 0  # records that cannot follow what came before
        self._ledger = ledger
        self._names = names
        self._ended = ended
        self._rids = itertools.count(1)
        self._over: list[Exchange] = []

    def feed(self, data: bytes, now_ns: int) -> Packet | None:
        """One packet as it came from the socket."""
        try:
            packet = Packet(data)
        except ValueError:
            self.unreadable += 1
            return None
        self.take(packet, now_ns)
        return packet

    def take(self, packet: Packet, now_ns: int) -> None:
        relay = self.relays.setdefault(packet.relay, RelayTap())
        self._follow(relay, packet, now_ns)
        self._packet(relay, packet)

    @property
    def exchanges(self) -> int:
        return sum(len(relay.streams) for relay in self.relays.values())

    def _follow(self, relay: RelayTap, packet: Packet, now_ns: int) -> None:
        relay.packets += 1
        if packet.epoch != relay.epoch:
            self._lose_streams(relay, now_ns)
            relay.epoch, relay.dropped_before, relay.stats = packet.epoch, relay.dropped, None
        elif packet.sequence != relay.sequence + 1:
            for exchange in list(relay.streams.values()):
                self._guard(exchange.hole)
            relay.usual.forget()
            self._ledger.hole_in_all(now_ns)
        relay.sequence = packet.sequence
        relay.dropped = relay.dropped_before + packet.dropped

    def _lose_streams(self, relay: RelayTap, now_ns: int) -> None:
        relay.lost_streams += len(relay.streams)
        relay.usual.forget()
        for stream, exchange in list(relay.streams.items()):
            self._finish(relay, stream, exchange, now_ns, End(Finish.CUT, exchange.status, "relay_died"))

    def _packet(self, relay: RelayTap, packet: Packet) -> None:
        rest = relay.usual.take(packet, self._ledger)
        self._records(relay, rest)
        for stream in {record[1] for record in rest}:
            relay.usual.expect(stream, relay.streams.get(stream))

    def _records(self, relay: RelayTap, records: Iterable[Record]) -> None:
        streams, shortest_stall_ns = relay.streams, self._ledger.shortest_stall_ns
        add_slot, add_time, add_events = self._ledger.add_read
        for time_ns, stream, kind, payload in records:
            if kind == _DATA:
                exchange = streams.get(stream)
                if exchange is None or (reader := exchange.reader) is None:
                    continue
                if exchange.parts:
                    exchange.parts += payload
                    payload = bytes(exchange.parts)
                    exchange.parts.clear()
                events = reader.feed(payload)
                slot = exchange.slot
                if (
                    slot >= 0
                    and (events or not reader.is_blind)
                    and reader.others is None
                    and not reader.tokens_in_read
                ):
                    if events:
                        request = exchange.request
                        chars = reader.chars_in_read
                        if time_ns - request.last_ns >= shortest_stall_ns or chars >= LONG_TEXT:
                            self._ledger.returned(request, slot, time_ns, events, chars)
                        add_slot(slot)
                        add_time(time_ns)
                        add_events(events)
                        request.events += events
                        request.chars += chars
                        request.last_ns = time_ns
                else:
                    self._guard(exchange.tokens, time_ns, events)
            elif kind == _DATA_PART:
                exchange = streams.get(stream)
                if exchange is not None and exchange.reader is not None:
                    exchange.parts += payload
            else:
                self._other(relay, time_ns, stream, kind, payload)

    def _other(self, relay: RelayTap, time_ns: int, stream: int, kind: int, payload: bytes) -> None:
        try:
            if kind == Kind.REQUEST:
                self._begin(relay, stream, payload)
            elif kind == Kind.END:
                self._end(relay, stream, time_ns, payload)
            elif kind == Kind.STATS:
                relay.take_stats(decode_payload(Kind.STATS, payload, RelayStats))
            elif kind == Kind.LATE:
                self._ledger.lagged(time_ns - int.from_bytes(payload, "little"), time_ns)
            elif exchange := relay.streams.get(stream):
                exchange.record(kind, time_ns, payload)
        except msgspec.DecodeError:
            self.unreadable += 1
        except LifecycleError:
            self.out_of_order += 1

    def _guard(self, call: Callable[..., None], *arguments: int) -> None:
        try:
            call(*arguments)
        except LifecycleError:
            self.out_of_order += 1

    def _begin(self, relay: RelayTap, stream: int, payload: bytes) -> None:
        head = decode_payload(Kind.REQUEST, payload, RequestHead)
        # One that is known already was told again for a new observer, but we are still the old one.
        if stream in relay.streams or len(relay.streams) >= MAX_EXCHANGES:
            return
        relay.streams[stream] = self.exchange_type(next(self._rids), head, self._ledger, self._names, self.bodies)

    def _end(self, relay: RelayTap, stream: int, time_ns: int, payload: bytes) -> None:
        end = decode_payload(Kind.END, payload, End)
        if exchange := relay.streams.get(stream):
            self._finish(relay, stream, exchange, time_ns, end)

    def _finish(self, relay: RelayTap, stream: int, exchange: Exchange, time_ns: int, end: End) -> None:
        del relay.streams[stream]
        try:
            exchange.end(time_ns, end)
        except LifecycleError:
            self.out_of_order += 1
        self._ended(exchange, end)
        self._over.append(exchange)

    def release_over(self) -> None:
        """The ledger has closed the books of all that ended before its last `advance`."""
        for exchange in self._over:
            exchange.release()
        self._over.clear()
