"""The observer's end of the taps: packets of all relays become calls on exchanges.

A packet's sequence number shows what was dropped before it; every stream of that relay then has a hole, across which
nothing is measured. A new epoch shows that the relay process is a new one: the streams of the old one are lost.

Every second the relay tells a digest of what it has in flight. Where the books differ, and after every hole, its list
is asked for, and the books are put right by it: what is not in it is over, what they do not have is asked for by name.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Final

from prefillwatch.analysis.ledger import LONG_TEXT, Ledger
from prefillwatch.analysis.requests import LifecycleError, ModelNames
from prefillwatch.observer.bodies import RequestBodies
from prefillwatch.observer.exchange import Exchange
from prefillwatch.observer.usual import Record, UsualReads
from prefillwatch.units import NS
from prefillwatch.wire.in_flight import BLOCKED, Ask, InFlight, decode_in_flight, encode_asks, spread
from prefillwatch.wire.tap import (
    End,
    Finish,
    Hello,
    Kind,
    Packet,
    PacketBuilder,
    RelayStats,
    RequestHead,
    decode_payload,
)

#: More streams of one relay than this are not followed; they still pass through unharmed.
MAX_EXCHANGES: Final = 65_536
#: A packet that tells of so long ago had waited in the relay, and more of its kind do. Else it is 20 ms old, and lay in
#: the socket for a beat.
_BEHIND_NS: Final = 500_000_000
#: … unless nothing came any more for so long.
_SILENT_NS: Final = NS
#: Between two lists of one relay.
_LIST_EVERY_NS: Final = 500_000_000

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
    closed: int = 0  # streams whose end was lost
    taken_in: int = 0  # streams whose beginning was lost
    caught_up: int = 0  # streams of which something in between was lost
    skipped_bytes: int = 0
    retries: int = 0
    usage_refused: int = 0
    displaced: int = 0  # clients that had to leave for others
    turned_away: int = 0
    lag_counts: list[int] = field(default_factory=list)  # of all processes of this relay together
    lag_sum: float = 0.0
    stats: RelayStats | None = None
    pid: int = 0
    streams: dict[int, Exchange] = field(default_factory=dict)
    digest: int = 0  # of their ids
    sorted_ids: list[int] = field(default_factory=list)  # of those there were when the list that comes in began
    wants_list: bool = False
    listed_ns: int = 0  # when it was asked for last
    unsure: set[int] = field(default_factory=set)  # streams that have to be told again, and are asked for
    unasked: set[int] = field(default_factory=set)  # those of them that were not asked for yet
    unwanted: set[int] = field(default_factory=set)  # streams of whose answer nothing more can be read
    last_ns: int = 0  # the newest record
    taken_ns: int = 0  # when it came
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
        self.turned_away += stats.turned_away - (before.turned_away if before else 0)
        self.displaced += stats.places_given - (before.places_given if before else 0)
        self.skipped_bytes += stats.skipped_bytes - (before.skipped_bytes if before else 0)
        self.stats = stats
        full = len(self.streams) >= MAX_EXCHANGES
        if stats.digest >= 0 and not full and (stats.exchanges, stats.digest) != (len(self.streams), self.digest):
            self.wants_list = True

    def is_behind(self, now_ns: int) -> bool:
        """Whether it has more to tell of the past than it could."""
        return self.taken_ns - self.last_ns > _BEHIND_NS and now_ns - self.taken_ns < _SILENT_NS

    def asks(self, now_ns: int) -> list[bytes]:
        """What it is to be asked now, each in a packet."""
        packets = encode_asks(Ask.STOP, self.epoch, self.unwanted) + encode_asks(Ask.TELL, self.epoch, self.unasked)
        self.unwanted.clear()
        self.unasked.clear()
        if self.wants_list and now_ns - self.listed_ns >= _LIST_EVERY_NS and not self.is_behind(now_ns):
            self.wants_list, self.listed_ns = False, now_ns
            packets += encode_asks(Ask.LIST, self.epoch)
        return packets


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
        if packet.count:
            # A packet may end with news of old: what is told again has its own time.
            relay.last_ns, relay.taken_ns = max(relay.last_ns, packet.last_ns), now_ns
        self._follow(relay, packet, now_ns)
        self._packet(relay, packet)

    def farewell(self, index: int, now_ns: int) -> bytes:
        """The packet that a relay process which died would have sent at its end, had it known."""
        relay = self.relays[index]
        builder = PacketBuilder(index, relay.epoch)
        builder.sequence, builder.dropped = relay.sequence, relay.dropped - relay.dropped_before
        builder.add(now_ns, 0, Kind.GONE)
        return builder.take()

    def known_until(self, now_ns: int) -> int:
        """The books know of all that happened before this moment. Judged by the clock, what a relay could not tell yet
        would look like silence."""
        return min((each.last_ns for each in self.relays.values() if each.is_behind(now_ns)), default=now_ns)

    def is_behind(self, now_ns: int) -> bool:
        return any(relay.is_behind(now_ns) for relay in self.relays.values())

    @property
    def packets(self) -> int:
        return sum(relay.packets for relay in self.relays.values())

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
            relay.wants_list = True
            self._ledger.hole_in_all(now_ns)
        relay.sequence = packet.sequence
        relay.dropped = relay.dropped_before + packet.dropped

    def _lose_streams(self, relay: RelayTap, now_ns: int) -> None:
        relay.lost_streams += len(relay.streams)
        relay.usual.forget()
        for streams in (relay.unsure, relay.unasked, relay.unwanted):
            streams.clear()
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
                    and reader.over is None
                    and not reader.finished
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
                    self._long_way(relay, stream, exchange, time_ns, events)
            elif kind == _DATA_PART:
                exchange = streams.get(stream)
                if exchange is not None and exchange.reader is not None:
                    exchange.parts += payload
            else:
                self._other(relay, time_ns, stream, kind, payload)

    def _long_way(self, relay: RelayTap, stream: int, exchange: Exchange, time_ns: int, events: int) -> None:
        """A read that is not the usual token."""
        self._guard(exchange.tokens, time_ns, events)
        if exchange.reader is not None and exchange.reader.is_blind:
            relay.unwanted.add(stream)

    def _other(self, relay: RelayTap, time_ns: int, stream: int, kind: int, payload: bytes) -> None:
        try:
            if not stream:
                self._of_relay(relay, time_ns, kind, payload)
            elif kind == Kind.REQUEST:
                self._begin(relay, stream, time_ns, payload)
            elif kind == Kind.END:
                self._end(relay, stream, time_ns, payload)
            elif exchange := relay.streams.get(stream):
                exchange.record(kind, time_ns, payload)
        except LifecycleError:
            self.out_of_order += 1
        except ValueError:  # msgspec.DecodeError is one
            self.unreadable += 1

    def _of_relay(self, relay: RelayTap, time_ns: int, kind: int, payload: bytes) -> None:
        if kind == Kind.STATS:
            relay.take_stats(decode_payload(Kind.STATS, payload, RelayStats))
        elif kind == Kind.LATE:
            self._ledger.lagged(time_ns - int.from_bytes(payload, "little"), time_ns)
        elif kind == Kind.HELLO:
            relay.pid = decode_payload(Kind.HELLO, payload, Hello).pid
        elif kind == Kind.IN_FLIGHT:
            self._compare(relay, time_ns, decode_in_flight(payload))
        elif kind == Kind.GONE:
            self._lose_streams(relay, time_ns)

    def _guard(self, call: Callable[..., None], *arguments: int) -> None:
        try:
            call(*arguments)
        except LifecycleError:
            self.out_of_order += 1

    def _begin(self, relay: RelayTap, stream: int, time_ns: int, payload: bytes) -> None:
        head = decode_payload(Kind.REQUEST, payload, RequestHead)
        asked_for = stream in relay.unsure
        relay.unsure.discard(stream)
        known = relay.streams.get(stream)
        if known is not None:
            # Unless it was asked for, it was told again for a new observer, but we are still the old one.
            if asked_for:
                relay.caught_up += 1
                known.told_again(time_ns, head)
        elif len(relay.streams) < MAX_EXCHANGES:
            relay.taken_in += asked_for
            relay.streams[stream] = self.exchange_type(next(self._rids), head, self._ledger, self._names, self.bodies)
            relay.digest ^= spread(stream)

    def _compare(self, relay: RelayTap, time_ns: int, told: InFlight) -> None:
        """A slice of what the relay has in flight."""
        if not told.after:
            relay.sorted_ids = sorted(relay.streams)
            relay.unsure.clear()  # what still is will be found again
        ids, there = relay.sorted_ids, set(told.streams)
        for stream in ids[bisect_right(ids, told.after) : bisect_right(ids, told.until)]:
            exchange = relay.streams.get(stream)
            if exchange is not None and stream not in there:
                relay.closed += 1
                self._finish(relay, stream, exchange, time_ns, End(Finish.LOST, exchange.status))
                relay.usual.expect(stream, None)
        for stream, read_ns, stage in zip(told.streams, told.read_ns, told.stages, strict=True):
            exchange = relay.streams.get(stream)
            if exchange is not None and exchange.stage >= stage & ~BLOCKED:
                exchange.told(time_ns, read_ns, blocked=bool(stage & BLOCKED))
            elif exchange is not None or len(relay.streams) + len(relay.unsure) < MAX_EXCHANGES:
                relay.unsure.add(stream)
                relay.unasked.add(stream)

    def _end(self, relay: RelayTap, stream: int, time_ns: int, payload: bytes) -> None:
        end = decode_payload(Kind.END, payload, End)
        if exchange := relay.streams.get(stream):
            self._finish(relay, stream, exchange, time_ns, end)

    def _finish(self, relay: RelayTap, stream: int, exchange: Exchange, time_ns: int, end: End) -> None:
        del relay.streams[stream]
        relay.digest ^= spread(stream)
        relay.unsure.discard(stream)
        relay.unasked.discard(stream)
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
