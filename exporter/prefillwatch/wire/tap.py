"""The tap: how a relay reports to the observer what it saw. Pure packing and unpacking; no sockets here.

A relay collects records and sends them as packets over a SOCK_SEQPACKET socketpair, so a packet arrives whole or not at
all. A packet that does not fit is dropped whole; the next one that gets through shows the hole by its sequence number.

Packet layout (little endian)::

    header   u32 magic, u32 epoch, u64 sequence, u64 dropped, u32 count, u32 relay
    times    count x u64   monotonic nanoseconds of the read (or write) that the record is about
    keys     count x u64   stream id << 8 | kind
    lengths  count x u32   payload lengths
    payloads               back to back

``epoch`` is new for every relay process, so that a restarted relay is not taken for a hole. ``dropped`` counts the
packets this relay process has dropped so far. Stream id 0 belongs to the relay itself (HELLO, STATS, IN_FLIGHT).

Where there is no room for all, bodies are left out first: the records of beginnings and ends go out without
them, and a SKIPPED record stands where bytes are missing. The other way, the observer asks (see `in_flight`).
"""

from __future__ import annotations

import enum
import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec

MAGIC: Final = 0x70774154
#: Largest packet; two of them fit the default socket buffer of Linux.
MAX_PACKET_BYTES: Final = 96 * 1024
#: Largest payload of one record; longer reads are cut into DATA_PART records and a last DATA.
MAX_PAYLOAD_BYTES: Final = 32 * 1024

_HEADER: Final = struct.Struct("<IIQQII")
_RECORD_BYTES: Final = 20


class Kind(enum.IntEnum):
    """What a record is about."""

    HELLO = 0  # stream 0: a relay process begins (payload: Hello)
    REQUEST = 1  # first byte of a request was read; its head is complete (payload: RequestHead)
    REQUEST_BODY = 2  # a piece of the request body (transfer coding removed)
    REQUEST_END = 3  # the last byte of the request was read; TTFT starts here (payload: body size, u64 little endian)
    SENT = 4  # the whole request was handed to upstream (again, after a retry)
    RESPONSE = 5  # the response head was read (payload: ResponseHead)
    DATA_PART = 6  # a piece of a read; more pieces with the same time follow
    DATA = 7  # the body bytes of one read (transfer coding removed), or their last piece
    END = 8  # the exchange is over (payload: End)
    BLOCKED = 9  # the client's socket took no more: writing to it is blocked from here
    UNBLOCKED = 10  # the client's socket takes bytes again
    STATS = 11  # stream 0: the relay's own figures (payload: RelayStats)
    LATE = 12  # stream 0: the relay did not run for so long before this time (payload: nanoseconds, u64 little endian)
    SKIPPED = 13  # body bytes that are not shown came here (payload: how many, u64 little endian; 0: not counted)
    IN_FLIGHT = 14  # stream 0: a slice of what the relay has in flight (payload: InFlight)
    GONE = 15  # stream 0: this relay process is no more, and its streams with it; said by the process that noticed


#: Kinds whose records are left out where there is no room: each is a piece of a body, and nothing hangs on it for long.
BODIES: Final = frozenset((Kind.REQUEST_BODY, Kind.DATA_PART, Kind.DATA))


class Finish(enum.IntEnum):
    """How an exchange ended, as far as bytes show. Errors inside the answer are the observer's to find."""

    COMPLETE = 0  # the answer was passed on to its end
    CLIENT_CLOSED = 1  # the client left first
    UPSTREAM_TRUNCATED = 2  # upstream broke off after its response head
    UPSTREAM_UNREACHABLE = 3  # no connection, or it died before a response head: answered 502 by us
    REJECTED = 4  # refused by us (400, 408, 413, 501 ...); upstream saw nothing
    CUT = 5  # cut by us when the drain limit ran out
    LOST = 6  # it is over, and the record that said how was lost


class Hello(msgspec.Struct, frozen=True, array_like=True):
    relay: int
    pid: int


class RequestHead(msgspec.Struct, frozen=True, array_like=True):
    """A request as the observer may know it: no query string, no credentials."""

    method: str
    path: str  # without the query; of a long one the end
    content_type: str = ""
    content_encoding: str = ""
    content_length: int = -1  # -1: not announced
    request_id: str = ""  # X-Request-Id, at most 128 characters
    slo_ttft_ms: float = 0.0  # x-slo-ttft-ms; 0: absent
    slo_tpot_ms: float = 0.0  # x-slo-tpot-ms; 0: absent
    resumed: bool = False  # reported again for an observer that started later; no body follows
    received_ns: int = 0  # with resumed: when REQUEST_END was
    body_limit: int = 0  # body bytes beyond this are not copied to the tap; 0: all are
    # With resumed, how far it has got:
    stage: int = 0  # a Stage; one of 0 with received_ns is from a relay that does not say
    body_size: int = 0  # bytes of its body
    read_ns: int = 0  # when a read last brought bytes of the answer's body; 0: none did
    traceparent: str = ""  # as sent, at most 128 characters; of several none
    # Where the settings ask for them:
    tenant: str = ""  # a name made of a header (`wire.sender`), never the header itself where that is a credential
    priority: int | None = None  # by header, clipped to the classes of `wire.sender`


class ResponseHead(msgspec.Struct, frozen=True, array_like=True):
    status: int
    content_type: str = ""
    content_encoding: str = ""
    observed: bool = True  # False: the body is not copied to the tap (binary, unknown endpoint)
    injected: bool = False  # usage was asked for by us and is stripped from what the client gets


class End(msgspec.Struct, frozen=True, array_like=True):
    finish: Finish
    status: int = 0  # the status the client got; 0: none
    reason: str = ""  # a RelayReason; empty for an answer that is complete, and for a client that just left


class RelayStats(msgspec.Struct, frozen=True, array_like=True):
    """Running totals of one relay process, sent every second."""

    client_connections: int
    upstream_connections: int
    idle_upstream_connections: int
    exchanges: int  # in flight
    lag_bounds: tuple[float, ...]  # seconds, upper bounds without +Inf
    lag_counts: tuple[int, ...]  # per bucket, not cumulative; one more than bounds
    lag_sum: float  # seconds
    retries: int = 0
    upstream_connect_failures: int = 0
    usage_refused: int = 0  # requests that upstream took only without the usage that we had asked for
    usage_rests: bool = False  # it is not asked for at the moment
    request_bytes: int = 0  # held of requests, or promised room
    unsent_bytes: int = 0  # of answers that clients' sockets did not take
    most_clients: int = 0  # that can be connected at once
    places_given: int = 0  # clients that had to leave for others
    turned_away: int = 0  # connections of addresses that had as many as they may
    digest: int = -1  # of the ids of what is in flight (see `in_flight.spread`); -1: not reported
    skipped_bytes: int = 0  # of bodies that were not shown


Payload = Hello | RequestHead | ResponseHead | End | RelayStats
P = TypeVar("P", Hello, RequestHead, ResponseHead, End, RelayStats)

_encoder = msgspec.msgpack.Encoder()
_DECODERS: Final[dict[int, msgspec.msgpack.Decoder[Any]]] = {
    Kind.HELLO: msgspec.msgpack.Decoder(Hello),
    Kind.REQUEST: msgspec.msgpack.Decoder(RequestHead),
    Kind.RESPONSE: msgspec.msgpack.Decoder(ResponseHead),
    Kind.END: msgspec.msgpack.Decoder(End),
    Kind.STATS: msgspec.msgpack.Decoder(RelayStats),
}


def encode_payload(payload: Payload) -> bytes:
    return _encoder.encode(payload)


def decode_payload(kind: int, data: bytes | memoryview, expected: type[P]) -> P:
    """The payload of a HELLO, REQUEST, RESPONSE, END or STATS record. Raises msgspec.DecodeError on other bytes."""
    payload = _DECODERS[kind].decode(data)
    assert isinstance(payload, expected)
    return payload


class PacketBuilder:
    """Collects records of one relay process and packs them. Not more work per record than three appends."""

    __slots__ = ("_keys", "_payloads", "_size", "_times", "dropped", "epoch", "relay", "sequence")

    def __init__(self, relay: int, epoch: int) -> None:
        self.relay = relay
        self.epoch = epoch
        self.sequence = 0
        self.dropped = 0
        self._times: list[int] = []
        self._keys: list[int] = []
        self._payloads: list[bytes] = []
        self._size = _HEADER.size

    def __len__(self) -> int:
        return len(self._times)

    def add(self, time_ns: int, stream: int, kind: int, payload: bytes = b"") -> bool:
        """Add a record; True when the packet is full and must be taken before the next record is added."""
        self._times.append(time_ns)
        self._keys.append(stream << 8 | kind)
        self._payloads.append(payload)
        self._size += _RECORD_BYTES + len(payload)
        return self._size > MAX_PACKET_BYTES - MAX_PAYLOAD_BYTES - _RECORD_BYTES

    @property
    def columns(self) -> tuple[list[int], list[int], list[bytes]]:
        """Times, keys (stream id << 8 | kind) and payloads of the records that wait.

        For a caller to whom a call per record is too much: appending to all three adds a record. Then `take_all` must
        be used, since the fullness that `add` reports does not know of such records.
        """
        return self._times, self._keys, self._payloads

    @property
    def size(self) -> int:
        """Bytes of the records that wait."""
        return _RECORD_BYTES * len(self._payloads) + sum(map(len, self._payloads))

    def leave_out_bodies(self, start: int, marked: set[int]) -> bool:
        """Of the records from number ``start`` on keep only those that are no bodies; whether there were bodies.

        A SKIPPED record stands for the first that is left out of each stream, unless the stream is ``marked`` already.
        What else is reported of a stream unmarks it: its body bytes behind that need a mark of their own.
        """
        times, keys, payloads = self.columns
        end = start
        found = False
        for index in range(start, len(keys)):
            key, payload = keys[index], payloads[index]
            if key & 0xFF in BODIES:
                found = True
                if key >> 8 in marked:
                    continue
                marked.add(key >> 8)
                key, payload = key >> 8 << 8 | Kind.SKIPPED, b""
            else:
                marked.discard(key >> 8)
            times[end], keys[end], payloads[end] = times[index], key, payload
            end += 1
        for column in (times, keys, payloads):
            del column[end:]
        self._size = _HEADER.size + self.size
        return found

    def drop(self, packets: int = 1) -> None:
        """Count packets that are not sent; the next one shows the hole."""
        self.dropped += packets
        self.sequence += packets

    def take(self) -> bytes:
        """The packet of all records since the last call, numbered."""
        packet = self._pack(self._times, self._keys, self._payloads, list(map(len, self._payloads)))
        self._clear()
        return packet

    def take_all(self) -> list[bytes]:
        """All records since the last call in as many packets as they need; none without records."""
        times, keys, payloads = self.columns
        lengths = list(map(len, payloads))
        if _HEADER.size + _RECORD_BYTES * len(lengths) + sum(lengths) <= MAX_PACKET_BYTES:
            packets = [self._pack(times, keys, payloads, lengths)] if lengths else []
        else:
            parts = itertools.pairwise(_cuts(lengths))
            packets = [self._pack(times[a:b], keys[a:b], payloads[a:b], lengths[a:b]) for a, b in parts]
        self._clear()
        return packets

    def _pack(self, times: list[int], keys: list[int], payloads: list[bytes], lengths: list[int]) -> bytes:
        count = len(times)
        self.sequence += 1
        return b"".join(
            (
                _HEADER.pack(MAGIC, self.epoch, self.sequence, self.dropped, count, self.relay),
                struct.pack(f"<{count}Q{count}Q{count}I", *times, *keys, *lengths),
                *payloads,
            )
        )

    def _clear(self) -> None:
        self._times.clear()
        self._keys.clear()
        self._payloads.clear()
        self._size = _HEADER.size


def _cuts(lengths: list[int]) -> list[int]:
    """Between which records packets begin and end, so that each has room for its records."""
    cuts = [0]
    size = _HEADER.size
    for index, length in enumerate(lengths):
        size += _RECORD_BYTES + length
        if size > MAX_PACKET_BYTES:
            cuts.append(index)
            size = _HEADER.size + _RECORD_BYTES + length
    return [*cuts, len(lengths)]


def pieces(data: bytes) -> Iterator[tuple[bool, bytes]]:
    """Cut a long read into (is_last, piece) pairs that each fit a record."""
    for start in range(0, len(data), MAX_PAYLOAD_BYTES):
        end = start + MAX_PAYLOAD_BYTES
        yield end >= len(data), data[start:end]


class Packet:
    """A received packet. Iterating gives (time_ns, stream, kind, payload) with payloads as bytes."""

    __slots__ = ("_body", "count", "dropped", "epoch", "relay", "sequence")

    def __init__(self, data: bytes) -> None:
        """Raises ValueError when the bytes are no packet."""
        if len(data) < _HEADER.size:
            raise ValueError(f"tap packet of {len(data)} bytes is shorter than its header")
        magic, self.epoch, self.sequence, self.dropped, self.count, self.relay = _HEADER.unpack_from(data)
        if magic != MAGIC or len(data) < _HEADER.size + self.count * _RECORD_BYTES:
            raise ValueError("tap packet with a bad header")
        self._body = data

    @property
    def last_ns(self) -> int:
        """Time of the last record; 0 for an empty packet."""
        return int.from_bytes(self._body[_HEADER.size + 8 * (self.count - 1) :][:8], "little") if self.count else 0

    def __iter__(self) -> Iterator[tuple[int, int, int, bytes]]:
        times, keys, payloads = self.columns()
        streams = [key >> 8 for key in keys]
        first = _HEADER.size + 8 * self.count
        kinds = self._body[first : first + 8 * self.count : 8]  # the lowest byte of each key
        return zip(times, streams, kinds, payloads, strict=True)

    def columns(self) -> tuple[Sequence[int], Sequence[int], list[bytes]]:
        """Times, keys (stream id << 8 | kind) and payloads."""
        data, count = self._body, self.count
        fixed = struct.unpack_from(f"<{count}Q{count}Q{count}I", data, _HEADER.size)
        ends = itertools.accumulate(fixed[2 * count :], initial=_HEADER.size + count * _RECORD_BYTES)
        payloads = [data[start:end] for start, end in itertools.pairwise(ends)]
        return fixed[:count], fixed[count : 2 * count], payloads


def without_bodies(packet: bytes, marked: set[int]) -> bytes:
    """A packet with what `PacketBuilder.leave_out_bodies` leaves of its records; its number is the same."""
    read = Packet(packet)
    builder = PacketBuilder(read.relay, read.epoch)
    builder.sequence, builder.dropped = read.sequence - 1, read.dropped
    times, keys, payloads = read.columns()
    builder._times += times
    builder._keys += keys
    builder._payloads += payloads
    builder.leave_out_bodies(0, marked)
    return builder.take()
