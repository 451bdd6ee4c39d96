"""What a relay has in flight, and what the observer asks of a relay: how the books are put right after a loss.

Records go one way, and some may be lost. So every second a relay reports how many exchanges it has, and a digest of
their ids; an observer whose books say otherwise, or that knows of a loss, asks for the list. Whatever is not in it is
over; whatever the books do not have is asked for by its id, and reported again. Pure packing and unpacking; no sockets
here.

The list comes in slices, since each is made in one turn of the relay's loop. A slice holds for its place among the
records: of the ids above ``after`` and up to ``until``, exactly these are in flight.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

_HEAD: Final = struct.Struct("<QQI")
_MASK: Final = 2**64 - 1
#: The golden ratio in 64 bits: neighbours end up far apart.
_SPREAD: Final = 0x9E3779B97F4A7C15
#: An id, when its answer was last read, and its stage.
_ENTRY_BYTES: Final = 17
#: Exchanges in one slice: less work than a turn of the loop with a few tokens has.
SLICE: Final = 256


class Stage(enum.IntEnum):
    """How far a relay has got with an exchange."""

    RECEIVING = 0
    RECEIVED = 1  # the request is complete, and not yet handed to upstream
    SENT = 2
    ANSWERED = 3  # the response head was read


#: Beside the stage: the client takes nothing at the moment.
BLOCKED: Final = 0x80


class InFlight(NamedTuple):
    """One slice. ``read_ns``: when a read last brought bytes of the answer's body; 0: none did."""

    after: int
    until: int
    streams: Sequence[int]
    read_ns: Sequence[int]
    stages: Sequence[int]  # a Stage, perhaps with BLOCKED


def spread(stream: int) -> int:
    """What an id adds to a digest, and takes from it again: the digest of a set is the exclusive or over its ids."""
    return stream * _SPREAD & _MASK


def encode_in_flight(slice_: InFlight) -> bytes:
    count = len(slice_.streams)
    head = _HEAD.pack(slice_.after, slice_.until, count)
    return head + struct.pack(f"<{2 * count}Q", *slice_.streams, *slice_.read_ns) + bytes(slice_.stages)


def decode_in_flight(payload: bytes) -> InFlight:
    """Raises ValueError on other bytes."""
    if len(payload) < _HEAD.size:
        raise ValueError("a slice of what is in flight is shorter than its header")
    after, until, count = _HEAD.unpack_from(payload)
    if len(payload) != _HEAD.size + _ENTRY_BYTES * count:
        raise ValueError("a slice of what is in flight has another length than its header says")
    numbers = struct.unpack_from(f"<{2 * count}Q", payload, _HEAD.size)
    return InFlight(after, until, numbers[:count], numbers[count:], payload[_HEAD.size + 16 * count :])


class Ask(enum.IntEnum):
    """What the observer wants of a relay."""

    LIST = 0  # report what is in flight
    REPORT = 1  # report these exchanges again
    STOP = 2  # show no more of these answers: they cannot be read


_ASK: Final = struct.Struct("<BI")
#: Ids in one packet: small enough for any socket buffer.
_MOST_ASKED: Final = 1024


def encode_asks(ask: Ask, epoch: int, streams: Iterable[int] = ()) -> list[bytes]:
    """As many packets as it takes; for LIST, one without ids. ``epoch``: of the relay process whose ids these are."""
    head = _ASK.pack(ask, epoch)
    if ask is Ask.LIST:
        return [head]
    ids = list(streams)
    parts = [ids[start : start + _MOST_ASKED] for start in range(0, len(ids), _MOST_ASKED)]
    return [head + struct.pack(f"<{len(part)}Q", *part) for part in parts]


def decode_ask(packet: bytes) -> tuple[Ask, int, tuple[int, ...]]:
    """What is asked, of which epoch, and the ids. Raises ValueError on other bytes."""
    if len(packet) < _ASK.size or (len(packet) - _ASK.size) % 8:
        raise ValueError("not an ask")
    ask, epoch = _ASK.unpack_from(packet)
    return Ask(ask), epoch, struct.unpack_from(f"<{len(packet) // 8}Q", packet, _ASK.size)
