"""The observer's end of the taps: packets of all relays become calls on exchanges.

A packet's sequence number shows what was dropped before it; every stream of that relay then has a hole, across which
nothing is measured. A new epoch shows that the relay process is a new one: the streams of the old one are lost.

Every second the relay reports a digest of what it has in flight. Where the books differ, and after every hole, its list
is asked for, and the books are put right by it: what is not in it is over, what they do not have is asked for by name.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from prefillwatch.analysis.ledger import Ledger
from prefillwatch.analysis.requests import LifecycleError, ModelNames
from prefillwatch.contract.buckets import LAG_BOUNDS
from prefillwatch.core.bodies import RequestBodies
from prefillwatch.core.exchange import Exchange
from prefillwatch.core.inputs import FactPacket
from prefillwatch.core.noting import FactNotes
from prefillwatch.core.reading import Other, Reading
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

_REQUEST: Final = int(Kind.REQUEST)
_END: Final = int(Kind.END)

#: More streams of one relay than this are not followed; they still pass through unharmed.
MAX_EXCHANGES: Final = 65_536
#: A packet with news of so long ago had waited in the relay, and more of its kind do. Else it is 20 ms old, and lay in
#: the socket for a beat.
_BEHIND_NS: Final = 500_000_000
#: … unless nothing came any more for so long.
_SILENT_NS: Final = NS
#: Between two lists of one relay.
_LIST_EVERY_NS: Final = 500_000_000


@dataclass(slots=True)
class RelayTap:
    """What is known of one relay, across its restarts. ``dropped`` and ``lost`` are totals over all its processes."""

    reading: Reading
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
    connect_failures: int = 0
    usage_refused: int = 0
    displaced: int = 0  # clients that had to leave for others
    turned_away: int = 0
    #: By the buckets of LAG_BOUNDS, of all processes of this relay together.
    lag_counts: list[int] = field(default_factory=lambda: [0] * (len(LAG_BOUNDS) + 1))
    lag_sum: float = 0.0
    stats: RelayStats | None = None
    pid: int = 0
    digest: int = 0  # of the ids of its streams
    sorted_ids: list[int] = field(default_factory=list)  # of those there were when the list that comes in began
    wants_list: bool = False
    listed_ns: int = 0  # when it was asked for last
    unsure: set[int] = field(default_factory=set)  # streams that have to be reported again, and are asked for
    unasked: set[int] = field(default_factory=set)  # those of them that were not asked for yet
    last_ns: int = 0  # the newest record
    taken_ns: int = 0  # when it came
    recorded: bool = False  # its packets come from a recording, with facts in place of texts

    @property
    def streams(self) -> dict[int, Exchange]:
        return self.reading.streams

    def take_stats(self, stats: RelayStats) -> None:
        """Running totals of the present process; ours go on over restarts."""
        before = self.stats
        if stats.lag_bounds == LAG_BOUNDS:  # else it is a recording of another release, and fits no histogram of ours
            for bucket, count in enumerate(stats.lag_counts):
                self.lag_counts[bucket] += count - (before.lag_counts[bucket] if before else 0)
            self.lag_sum += stats.lag_sum - (before.lag_sum if before else 0.0)
        self.retries += stats.retries - (before.retries if before else 0)
        self.connect_failures += stats.upstream_connect_failures - (before.upstream_connect_failures if before else 0)
        self.usage_refused += stats.usage_refused - (before.usage_refused if before else 0)
        self.turned_away += stats.turned_away - (before.turned_away if before else 0)
        self.displaced += stats.places_given - (before.places_given if before else 0)
        self.skipped_bytes += stats.skipped_bytes - (before.skipped_bytes if before else 0)
        self.stats = stats
        full = len(self.streams) >= MAX_EXCHANGES
        if stats.digest >= 0 and not full and (stats.exchanges, stats.digest) != (len(self.streams), self.digest):
            self.wants_list = True

    def is_behind(self, now_ns: int) -> bool:
        """Whether it has more to report of the past than it could."""
        return self.taken_ns - self.last_ns > _BEHIND_NS and now_ns - self.taken_ns < _SILENT_NS

    def asks(self, now_ns: int) -> list[bytes]:
        """What it is to be asked now, each in a packet."""
        packets = encode_asks(Ask.STOP, self.epoch, self.reading.blind)
        packets += encode_asks(Ask.REPORT, self.epoch, self.unasked)
        self.reading.blind.clear()
        self.unasked.clear()
        if self.wants_list and now_ns - self.listed_ns >= _LIST_EVERY_NS and not self.is_behind(now_ns):
            self.wants_list, self.listed_ns = False, now_ns
            packets += encode_asks(Ask.LIST, self.epoch)
        return packets


class Relays:
    """Works the packets of all taps through, relay by relay. Pure of sockets: the process reads those."""

    def __init__(
        self, ledger: Ledger, names: ModelNames, ended: Callable[[Exchange, End], None], bodies: RequestBodies
    ) -> None:
        """``ended`` hears of every exchange that is over, before it leaves."""
        self.relays: dict[int, RelayTap] = {}
        self.bodies = bodies
        self.unreadable = 0  # packets and records that could not be understood
        #: Where a recording is made: takes the facts of each packet.
        self.notes: FactNotes | None = None
        self._out_of_order = 0
        self._ledger = ledger
        self._names = names
        self._ended = ended
        self._rids = itertools.count(1)
        self._over: list[Exchange] = []

    def feed(self, data: bytes, now_ns: int) -> Packet | None:
        """One packet as it came from the socket; None where it cannot be read."""
        try:
            packet = Packet(data)
        except ValueError:
            self.unreadable += 1
            if self.notes is not None:
                self.notes.unreadable(now_ns)
            return None
        self.take(packet, now_ns)
        return packet

    def take(self, packet: Packet | FactPacket, now_ns: int) -> None:
        relay = self.relays.get(packet.relay)
        if relay is None:
            relay = self.relays[packet.relay] = RelayTap(Reading(self._ledger))
        if packet.count:
            # A packet may end with news of old: what is reported again has its own time.
            relay.last_ns, relay.taken_ns = max(relay.last_ns, packet.last_ns), now_ns
        other: Other = partial(self._other, relay)
        if isinstance(packet, FactPacket):
            relay.recorded = True
            relay.reading.records(packet.lost, other)
        if self.notes is None:
            self._follow(relay, packet, now_ns)
            relay.reading.take(packet, other)
        else:
            self.notes.begin()
            self._follow(relay, packet, now_ns)
            self.notes.take(relay.reading, packet, other, now_ns)

    def farewell(self, index: int, now_ns: int) -> bytes:
        """The packet that a relay process which died would have sent at its end, had it known."""
        relay = self.relays[index]
        builder = PacketBuilder(index, relay.epoch)
        builder.sequence, builder.dropped = relay.sequence, relay.dropped - relay.dropped_before
        builder.add(now_ns, 0, Kind.GONE)
        return builder.take()

    def known_until(self, now_ns: int) -> int:
        """The books know of all that happened before this moment. Judged by the clock, what a relay could not report
        yet would look like silence."""
        return min((each.last_ns for each in self.relays.values() if each.is_behind(now_ns)), default=now_ns)

    def is_behind(self, now_ns: int) -> bool:
        return any(relay.is_behind(now_ns) for relay in self.relays.values())

    @property
    def out_of_order(self) -> int:
        """Records that cannot follow what came before."""
        return self._out_of_order + sum(relay.reading.out_of_order for relay in self.relays.values())

    @property
    def packets(self) -> int:
        return sum(relay.packets for relay in self.relays.values())

    @property
    def exchanges(self) -> int:
        return sum(len(relay.streams) for relay in self.relays.values())

    def _follow(self, relay: RelayTap, packet: Packet | FactPacket, now_ns: int) -> None:
        relay.packets += 1
        if packet.epoch != relay.epoch:
            self._lose_streams(relay, now_ns)
            relay.epoch, relay.dropped_before, relay.stats = packet.epoch, relay.dropped, None
        elif packet.sequence != relay.sequence + 1:
            relay.reading.hole()
            relay.wants_list = True
            self._ledger.hole_in_all(now_ns)
        relay.sequence = packet.sequence
        relay.dropped = relay.dropped_before + packet.dropped

    def _lose_streams(self, relay: RelayTap, now_ns: int) -> None:
        relay.lost_streams += len(relay.streams)
        relay.reading.expect_nothing()
        for streams in (relay.unsure, relay.unasked, relay.reading.blind):
            streams.clear()
        for stream, exchange in list(relay.streams.items()):
            self._finish(relay, stream, exchange, now_ns, End(Finish.CUT, exchange.status, "relay_died"))

    def _other(self, relay: RelayTap, time_ns: int, stream: int, kind: int, payload: bytes) -> None:
        try:
            if not stream:
                self._of_relay(relay, time_ns, kind, payload)
            elif kind == _REQUEST:
                self._begin(relay, stream, time_ns, payload)
            elif kind == _END:
                self._end(relay, stream, time_ns, payload)
            elif exchange := relay.streams.get(stream):
                exchange.record(kind, time_ns, payload)
        except LifecycleError:
            self._out_of_order += 1
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

    def _begin(self, relay: RelayTap, stream: int, time_ns: int, payload: bytes) -> None:
        head = decode_payload(_REQUEST, payload, RequestHead)
        asked_for = stream in relay.unsure
        relay.unsure.discard(stream)
        known = relay.streams.get(stream)
        if known is not None:
            # Unless it was asked for, it was reported again for a new observer, but we are still the old one.
            if asked_for:
                relay.caught_up += 1
                known.resumed(time_ns, head)
        elif len(relay.streams) < MAX_EXCHANGES:
            relay.taken_in += asked_for
            relay.streams[stream] = Exchange(
                next(self._rids), head, self._ledger, self._names, self.bodies, recorded=relay.recorded
            )
            relay.digest ^= spread(stream)

    def _compare(self, relay: RelayTap, time_ns: int, listed: InFlight) -> None:
        """A slice of what the relay has in flight."""
        if not listed.after:
            relay.sorted_ids = sorted(relay.streams)
            relay.unsure.clear()  # what still is will be found again
        ids, there = relay.sorted_ids, set(listed.streams)
        for stream in ids[bisect_right(ids, listed.after) : bisect_right(ids, listed.until)]:
            exchange = relay.streams.get(stream)
            if exchange is not None and stream not in there:
                relay.closed += 1
                self._finish(relay, stream, exchange, time_ns, End(Finish.LOST, exchange.status))
                relay.reading.expect(stream)
        for stream, read_ns, stage in zip(listed.streams, listed.read_ns, listed.stages, strict=True):
            exchange = relay.streams.get(stream)
            if exchange is not None and exchange.stage >= stage & ~BLOCKED:
                exchange.reported(time_ns, read_ns, blocked=bool(stage & BLOCKED))
            elif exchange is not None or len(relay.streams) + len(relay.unsure) < MAX_EXCHANGES:
                relay.unsure.add(stream)
                relay.unasked.add(stream)

    def _end(self, relay: RelayTap, stream: int, time_ns: int, payload: bytes) -> None:
        end = decode_payload(_END, payload, End)
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
            self._out_of_order += 1
        self._ended(exchange, end)
        if self.notes is not None and exchange.reader is not None:
            self.notes.answer(stream, time_ns, exchange.reader)
        self._over.append(exchange)

    def release_over(self) -> None:
        """The ledger has closed the books of all that ended before its last `advance`."""
        for exchange in self._over:
            exchange.release()
        self._over.clear()
