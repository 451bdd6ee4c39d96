"""The usual reads of a packet, taken at once: each one token event, in the shape that its stream's reader has learned.

Record by record they would cost twice as much. A stream of which a packet holds anything else is left to the long way
for that packet, so that the order of its records is kept; among streams it does not matter.

Everything is kept in columns that run side by side: a tuple per read would cost more than all that is done with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import TypeAlias

from prefillwatch.analysis.ledger import LONG_TEXT, Ledger
from prefillwatch.observer.exchange import Exchange
from prefillwatch.wire.answer import AnswerReader
from prefillwatch.wire.tap import Kind, Packet
from prefillwatch.wire.template import Constant, text_lengths

#: Time, stream, kind and payload.
Record: TypeAlias = tuple[int, int, int, bytes]


class UsualStream:
    """A stream whose next read most likely has this shape."""

    __slots__ = ("frame", "head", "number", "reader", "request", "slot", "tail")

    def __init__(self, number: int, exchange: Exchange, reader: AnswerReader, shape: Constant) -> None:
        self.number = number
        self.request = exchange.request
        self.slot = exchange.slot
        self.reader = reader
        self.head = shape.head
        self.tail = shape.tail
        self.frame = shape.head_length + shape.tail_length


class UsualReads:
    """Those streams of one relay for which there is a usual read."""

    __slots__ = ("_streams",)

    def __init__(self) -> None:
        self._streams: dict[int, UsualStream] = {}  # by the key of the records with their reads

    def expect(self, number: int, exchange: Exchange | None) -> None:
        """What the next read of a stream will be like, now that its records so far were worked through."""
        key = number << 8 | Kind.DATA
        reader = exchange.reader if exchange is not None and exchange.slot >= 0 and not exchange.parts else None
        shape = reader.usual if reader is not None else None
        if exchange is None or reader is None or shape is None:
            self._streams.pop(key, None)
        else:
            self._streams[key] = UsualStream(number, exchange, reader, shape)

    def forget(self) -> None:
        self._streams.clear()

    def take(self, packet: Packet, ledger: Ledger) -> list[Record]:
        """Note the usual reads of a packet; the records that are left."""
        if not self._streams:
            return list(packet)
        times, keys, payloads = packet.columns()
        found = list(map(self._streams.get, keys))
        others: set[int] = set()  # streams that go the long way
        if None in found:
            others = {key >> 8 for key, stream in zip(keys, found, strict=True) if stream is None}
            known = [stream is not None for stream in found]
            times, payloads = list(compress(times, known)), list(compress(payloads, known))
        streams = [stream for stream in found if stream is not None]
        texts = [
            payload.removeprefix(stream.head).removesuffix(stream.tail)
            for stream, payload in zip(streams, payloads, strict=True)
        ]
        chars = text_lengths(texts)
        others |= _misfits(streams, payloads, texts, chars)
        if others:
            usual = [stream.number not in others for stream in streams]
            times, chars = list(compress(times, usual)), list(compress(chars, usual))
            streams = list(compress(streams, usual))
        _note(ledger, streams, times, chars)
        return [record for record in packet if record[1] in others] if others else []


def _misfits(streams: list[UsualStream], payloads: list[bytes], texts: list[bytes], chars: list[int]) -> set[int]:
    """Streams with a read that was not the usual one. Of no read more was taken off than its stream's frame, so all
    are usual if together as much was taken off as there is of all frames."""
    taken_off = sum(map(len, payloads)) - sum(map(len, texts))
    if taken_off == sum([stream.frame for stream in streams]) and 0 not in chars:
        return set()
    return {
        stream.number
        for stream, payload, text, count in zip(streams, payloads, texts, chars, strict=True)
        if not count or len(payload) - len(text) != stream.frame
    }


def _note(ledger: Ledger, streams: list[UsualStream], times: Sequence[int], chars: list[int]) -> None:
    """The books that `Ledger.token` would keep of each of these reads."""
    shortest_stall_ns = ledger.shortest_stall_ns
    for stream, time_ns, count in zip(streams, times, chars, strict=True):
        request = stream.request
        if time_ns - request.last_ns >= shortest_stall_ns or count >= LONG_TEXT:
            ledger.returned(request, stream.slot, time_ns, 1, count)
        request.events += 1
        request.chars += count
        request.last_ns = time_ns
        stream.reader.token_events += 1
    ledger.single_tokens([stream.slot for stream in streams], times)
