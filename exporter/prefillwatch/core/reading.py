"""The records of one relay, read: what a packet holds becomes facts in the ledger and in the exchanges.

Nearly all records are reads of one token event each, in the shape that their stream's reader has learned. Those take
the fast path: a packet's worth at once, in columns that run side by side, since a tuple per read would cost more than
all that is done with it. A stream of which a packet holds anything else is left to the long path for that packet, so
that the order of its records is kept; among streams it does not matter. Both must leave the same books, so whoever
changes one changes the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Final, TypeAlias

from prefillwatch.analysis.ledger import Ledger
from prefillwatch.analysis.requests import LifecycleError
from prefillwatch.core.exchange import Exchange
from prefillwatch.core.inputs import FactPacket, Record
from prefillwatch.wire.answer import AnswerReader
from prefillwatch.wire.recorded import RecordedReader
from prefillwatch.wire.tap import Kind, Packet
from prefillwatch.wire.template import Constant, text_lengths

_DATA: Final = int(Kind.DATA)
_DATA_PART: Final = int(Kind.DATA_PART)

#: Takes the records that are no bytes of an answer: time, stream, kind and payload.
Other: TypeAlias = Callable[[int, int, int, bytes], None]


class ExpectedRead:
    """What the next read of a stream most likely looks like."""

    __slots__ = ("frame", "head", "number", "reader", "request", "slot", "tail")

    def __init__(self, number: int, exchange: Exchange, reader: AnswerReader | RecordedReader, shape: Constant) -> None:
        self.number = number
        self.request = exchange.request
        self.slot = exchange.slot
        self.reader = reader
        self.head = shape.head
        self.tail = shape.tail
        self.frame = shape.head_length + shape.tail_length


class Reading:
    """What one relay's streams are, and how their next reads will look."""

    __slots__ = ("_expected", "_ledger", "blind", "out_of_order", "streams")

    def __init__(self, ledger: Ledger) -> None:
        self.streams: dict[int, Exchange] = {}
        self.blind: set[int] = set()  # streams of whose answer nothing more can be read
        self.out_of_order = 0  # reads that cannot follow what came before
        self._expected: dict[int, ExpectedRead] = {}  # by the key of the records with their reads
        self._ledger = ledger

    def take(self, packet: Packet | FactPacket, other: Other) -> None:
        if isinstance(packet, FactPacket):
            self.records(packet, other)
            return
        rest = self._take_expected(packet) if self._expected else list(packet)
        self.records(rest, other)
        for stream in {record[1] for record in rest}:
            self.expect(stream)

    def expect(self, number: int) -> None:
        """What the next read of a stream will be like, now that its records so far were read."""
        exchange, key = self.streams.get(number), number << 8 | _DATA
        reader = exchange.reader if exchange is not None and exchange.slot >= 0 and not exchange.parts else None
        shape = reader.usual if reader is not None else None
        if exchange is None or reader is None or shape is None:
            self._expected.pop(key, None)
        else:
            self._expected[key] = ExpectedRead(number, exchange, reader, shape)

    def expect_nothing(self) -> None:
        """Something was lost, or each record is to be seen: the next reads take the long path."""
        self._expected.clear()

    def hole(self) -> None:
        """Records were lost, of any stream."""
        for exchange in list(self.streams.values()):
            self._in_order(exchange.hole)
        self._expected.clear()

    # --- The fast path ---

    def _take_expected(self, packet: Packet) -> list[Record]:
        """Note the reads that are as expected; the records that are left."""
        columns = times, keys, payloads = packet.columns()
        found = list(map(self._expected.get, keys))
        others: set[int] = set()  # streams that take the long path
        if None in found:
            others = {key >> 8 for key, read in zip(keys, found, strict=True) if read is None}
            known = [read is not None for read in found]
            times, payloads = list(compress(times, known)), list(compress(payloads, known))
        reads = [read for read in found if read is not None]
        texts = [
            payload.removeprefix(read.head).removesuffix(read.tail)
            for read, payload in zip(reads, payloads, strict=True)
        ]
        others |= _misfits(reads, payloads, texts)
        if others:  # their texts would keep those of all from being decoded together
            as_expected = [read.number not in others for read in reads]
            times, texts = list(compress(times, as_expected)), list(compress(texts, as_expected))
            reads = list(compress(reads, as_expected))
        chars = text_lengths(texts)
        if 0 in chars:
            odd = {read.number for read, count in zip(reads, chars, strict=True) if not count}
            others |= odd
            as_expected = [read.number not in odd for read in reads]
            times, chars = list(compress(times, as_expected)), list(compress(chars, as_expected))
            reads = list(compress(reads, as_expected))
        self._note(reads, times, chars)
        if not others:
            return []
        rest = zip(*columns, strict=True)
        return [(at, key >> 8, key & 0xFF, payload) for at, key, payload in rest if key >> 8 in others]

    def _note(self, reads: list[ExpectedRead], times: Sequence[int], chars: list[int]) -> None:
        """The books that `Ledger.token` would keep of each of these."""
        ledger = self._ledger
        shortest_stall_ns, long_text, returned = ledger.shortest_stall_ns, ledger.long_text, ledger.returned
        for read, time_ns, count in zip(reads, times, chars, strict=True):
            request = read.request
            if time_ns - request.last_ns >= shortest_stall_ns or count >= long_text:
                returned(request, read.slot, time_ns, 1, count)
            request.events += 1
            request.chars += count
            request.last_ns = time_ns
            read.reader.token_events += 1
        ledger.single_tokens([read.slot for read in reads], times)

    # --- The long path ---

    def records(self, records: Iterable[Record], other: Other) -> None:
        """One record after the other."""
        streams, shortest_stall_ns, long_text = self.streams, self._ledger.shortest_stall_ns, self._ledger.long_text
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
                        if time_ns - request.last_ns >= shortest_stall_ns or chars >= long_text:
                            self._ledger.returned(request, slot, time_ns, events, chars)
                        add_slot(slot)
                        add_time(time_ns)
                        add_events(events)
                        request.events += events
                        request.chars += chars
                        request.last_ns = time_ns
                else:
                    self._other_read(stream, exchange, time_ns, events)
            elif kind == _DATA_PART:
                exchange = streams.get(stream)
                if exchange is not None and exchange.reader is not None:
                    exchange.parts += payload
            else:
                other(time_ns, stream, kind, payload)

    def _other_read(self, stream: int, exchange: Exchange, time_ns: int, events: int) -> None:
        """A read that is no token of a stream whose first one is known."""
        self._in_order(exchange.tokens, time_ns, events)
        if exchange.reader is not None and exchange.reader.is_blind:
            self.blind.add(stream)

    def _in_order(self, call: Callable[..., None], *arguments: int) -> None:
        try:
            call(*arguments)
        except LifecycleError:
            self.out_of_order += 1


def _misfits(reads: list[ExpectedRead], payloads: list[bytes], texts: list[bytes]) -> set[int]:
    """Streams with a read that has not the expected frame. Of no read more was taken off than its stream's frame, so
    all have it if together as much was taken off as there is of all frames."""
    taken_off = sum(map(len, payloads)) - sum(map(len, texts))
    if taken_off == sum([read.frame for read in reads]):
        return set()
    return {
        read.number
        for read, payload, text in zip(reads, payloads, texts, strict=True)
        if len(payload) - len(text) != read.frame
    }
