"""Pieces of a recording: entries in the order in which they happened, and records of the tap in columns beside them.

A chunk (little endian)::

    u32 bytes of entries, u32 records, u32 bytes of payloads
    entries   back to back: u8 kind, i64 monotonic nanoseconds, u32 length, payload
    times     records x i64   less the time of the record before, byte planes apart
    keys      records x i64   stream id << 8 | kind, byte planes apart
    lengths   records x u32   of payloads, byte planes apart
    payloads  back to back

Numbers that differ little are written with their first bytes together, their second bytes together and so on, which
leaves long runs of equal bytes to the compression. An entry `PACKET` takes the next of the records.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from prefillwatch.core.inputs import FactPacket, PacketHead

_HEAD: Final = struct.Struct("<III")
_ENTRY: Final = struct.Struct("<BqI")
#: `PacketHead`, of how many records lost exchanges have the first, and how many records there are.
_PACKET: Final = struct.Struct("<IQQIIqII")
#: Records of one packet: a relay sends some 5,000 at once, and some five introduce each of its streams.
_MOST_IN_PACKET: Final = 1 << 18


class Kind(enum.IntEnum):
    """What an entry holds. Numbers are never given a new meaning; a new one raises the version of the format."""

    BEAT = 0  # the observer processed what it had read
    ADVANCE = 1  # the same, because figures were asked for
    PACKET = 2  # of the tap, texts replaced by facts; its records are in the columns
    RAW_PACKET = 3  # of the tap, as it came, texts and all
    PAGE = 4  # upstream's metrics
    MODELS = 5  # the names it serves
    UP = 6  # whether it is healthy
    STEP = 7  # reported by the plugin inside the engine
    UPSTREAM = 8  # how reading upstream's metrics goes
    GPUS = 9
    CONTROL = 10  # draining, restarts
    LINK = 11  # of the plugin
    BEGIN = 12  # a segment of a flight recording begins: those that follow introduce what is going on already
    BEGUN = 13  # and here it goes on
    LEARNED_BEFORE_3 = 14  # the same as the next in the layout of older versions; nothing reads it any more
    LEARNED = 15  # before the segment, see `core.learned`


@dataclass(frozen=True, slots=True)
class Entry:
    """``content`` is the payload, or the packet."""

    kind: int
    now_ns: int
    content: Any


class ChunkError(Exception):
    """The bytes are no chunk."""


class ChunkBuilder:
    """Collects entries and records; `take` packs them."""

    __slots__ = ("_entries", "_keys", "_payloads", "_times")

    def __init__(self) -> None:
        self._entries = bytearray()
        self._times: list[int] = []
        self._keys: list[int] = []
        self._payloads: list[bytes] = []

    def __len__(self) -> int:
        """About how many bytes it will have before compression."""
        return len(self._entries) + 21 * len(self._times)

    @property
    def records(self) -> int:
        return len(self._times)

    def entry(self, kind: Kind, now_ns: int, payload: bytes = b"") -> None:
        self._entries += _ENTRY.pack(kind, now_ns, len(payload))
        self._entries += payload

    @property
    def add_record(self) -> tuple[Callable[[int], None], Callable[[int], None], Callable[[bytes], None]]:
        """What appends a time, a key (stream id << 8 | kind) and a payload: calling all three adds a record, until
        `take`. For a caller to whom a call per record is too much."""
        return self._times.append, self._keys.append, self._payloads.append

    def record(self, time_ns: int, stream: int, kind: int, payload: bytes) -> None:
        self._times.append(time_ns)
        self._keys.append(stream << 8 | kind)
        self._payloads.append(payload)

    def packet(self, now_ns: int, head: PacketHead | None, *, begin: int, lost: int = 0) -> None:
        """The records since number ``begin`` are those of this packet, the first ``lost`` of lost exchanges. Without a
        head: one that could not be read."""
        payload = b"" if head is None else _PACKET.pack(*head, lost, len(self._times) - begin)
        self.entry(Kind.PACKET, now_ns, payload)

    def take(self) -> bytes:
        payloads = b"".join(self._payloads)
        times = np.array(self._times, np.int64)
        content = b"".join(
            (
                _HEAD.pack(len(self._entries), len(times), len(payloads)),
                bytes(self._entries),
                _planes(np.diff(times, prepend=np.int64(0))),
                _planes(np.array(self._keys, np.int64)),
                _planes(np.fromiter(map(len, self._payloads), np.uint32, len(self._payloads))),
                payloads,
            )
        )
        self._entries = bytearray()
        self._times, self._keys, self._payloads = [], [], []
        return content


def read_chunk(content: bytes) -> Iterator[Entry]:
    """Its entries. Raises ChunkError."""
    try:
        yield from _entries(content)
    except (struct.error, ValueError, IndexError) as error:
        raise ChunkError(str(error)) from None


def _entries(content: bytes) -> Iterator[Entry]:
    entry_bytes, count, payload_bytes = _HEAD.unpack_from(content)
    position = _HEAD.size + entry_bytes
    if len(content) != position + 20 * count + payload_bytes:
        raise ValueError("the lengths do not fit")
    records = _Records(content, position, count)
    position, end = _HEAD.size, position
    used = 0
    while position < end:
        kind, now_ns, length = _ENTRY.unpack_from(content, position)
        start, position = position + _ENTRY.size, position + _ENTRY.size + length
        payload = content[start:position]
        if kind == Kind.PACKET and payload:
            epoch, sequence, dropped, relay, count, last_ns, lost, number = _PACKET.unpack(payload)
            own = records.between(used, used + number)
            packet = FactPacket(epoch, sequence, dropped, relay, count, last_ns, own[:lost], own[lost:])
            yield Entry(kind, now_ns, packet)
            used += number
        else:
            yield Entry(kind, now_ns, payload)


class _Records:
    """The records of a chunk, in columns; as tuples they would take ten times as much."""

    def __init__(self, content: bytes, position: int, count: int) -> None:
        self._content = content
        self._times = np.cumsum(_from_planes(content, position, count, np.dtype("<i8")))
        self._keys = _from_planes(content, position + 8 * count, count, np.dtype("<i8"))
        lengths = _from_planes(content, position + 16 * count, count, np.dtype("<u4")).astype(np.int64)
        self._ends = np.cumsum(lengths) + (position + 20 * count)
        self._begin = position + 20 * count

    def between(self, first: int, last: int) -> list[tuple[int, int, int, bytes]]:
        """Raises ValueError for more than a packet has."""
        if last - first > _MOST_IN_PACKET:
            raise ValueError("more records than a packet has")
        times, keys = self._times[first:last].tolist(), self._keys[first:last].tolist()
        ends = self._ends[first:last].tolist()
        starts = [int(self._ends[first - 1]) if first and ends else self._begin, *ends[:-1]]
        return [
            (time_ns, key >> 8, key & 0xFF, self._content[start:end])
            for time_ns, key, start, end in zip(times, keys, starts, ends, strict=False)
        ]


def _planes(numbers: npt.NDArray[Any]) -> bytes:
    little = numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)
    planes: bytes = little.view(np.uint8).reshape(len(numbers), numbers.itemsize).T.tobytes()
    return planes


def _from_planes(content: bytes, position: int, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    planes = np.frombuffer(content, np.uint8, count * dtype.itemsize, position).reshape(dtype.itemsize, count)
    return np.ascontiguousarray(planes.T).view(dtype).reshape(count)
