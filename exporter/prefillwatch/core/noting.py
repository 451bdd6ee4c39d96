"""The facts of a packet, for a recording: noted down while its records are read, in place of their texts.

Each record is read by itself, on the long path, and is noted by what it left behind. Where nothing is recorded this
costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

import msgspec

from prefillwatch.core.exchange import Exchange
from prefillwatch.core.inputs import FactPacket, PacketHead, Record
from prefillwatch.core.reading import Other, Reading
from prefillwatch.wire import recorded
from prefillwatch.wire.answer import AnswerReader
from prefillwatch.wire.recorded import ANSWER_FACTS, ONE_EVENT, REQUEST_FACTS, RecordedReader, RecordedRequest
from prefillwatch.wire.tap import Kind, Packet, RequestHead, ResponseHead, decode_payload, encode_payload

_DATA: Final = int(Kind.DATA)
#: Their payload holds no text.
_PLAIN: Final = frozenset(
    {
        *(Kind.HELLO, Kind.STATS, Kind.LATE, Kind.IN_FLIGHT, Kind.GONE),
        *(Kind.SENT, Kind.BLOCKED, Kind.UNBLOCKED, Kind.SKIPPED, Kind.END),
    }
)
#: Texts, whose facts are noted with the record that completes them.
_PIECES: Final = frozenset({Kind.REQUEST_BODY, Kind.DATA_PART})
_SHORT: Final = len(ONE_EVENT)


class FactSink(Protocol):
    """Where facts go."""

    @property
    def records(self) -> int:
        """How many there are so far."""

    @property
    def add_record(self) -> tuple[Callable[[int], None], Callable[[int], None], Callable[[bytes], None]]:
        """What appends a time, a key (stream id << 8 | kind) and a payload: calling all three adds a record. For a
        caller to whom a call per record is too much."""

    def record(self, time_ns: int, stream: int, kind: int, payload: bytes) -> None: ...

    def packet(self, now_ns: int, head: PacketHead | None, *, begin: int, lost: int = 0) -> None:
        """The records since number ``begin`` are those of this packet, the first ``lost`` of exchanges that ended
        before it. Of one that could not be read there is no head."""


class FactNotes:
    """Call `begin`, and `take` in the place of `Reading.take`."""

    def __init__(self, sink: FactSink, *, senders: bool = False) -> None:
        """``senders``: names of tenants and priorities are kept."""
        self._sink = sink
        self._senders = senders
        self._begin = 0

    def unreadable(self, now_ns: int) -> None:
        """A packet came that could not be read."""
        self._sink.packet(now_ns, None, begin=self._sink.records)

    def begin(self) -> None:
        """What is noted from here on belongs to the next packet."""
        self._begin = self._sink.records

    def take(self, reading: Reading, packet: Packet | FactPacket, other: Other, now_ns: int) -> None:
        lost = self._sink.records - self._begin
        reading.expect_nothing()  # each record is to be seen
        self._records(reading, packet, other)
        self._sink.packet(now_ns, PacketHead.of(packet), begin=self._begin, lost=lost)

    def answer(self, stream: int, time_ns: int, reader: AnswerReader | RecordedReader) -> None:
        """An exchange is over."""
        self._sink.record(time_ns, stream, ANSWER_FACTS, recorded.answer_facts(reader))

    def _records(self, reading: Reading, records: Iterable[Record], other: Other) -> None:
        streams, read = reading.streams, reading.records
        add_time, add_key, add_payload = self._sink.add_record
        for record in records:
            time_ns, stream, kind, payload = record
            if kind == _DATA:
                exchange = streams.get(stream)
                if exchange is None or exchange.reader is None:
                    continue
                reader, begun = exchange.reader, exchange.slot >= 0
                had_lost_sight, were_over = exchange.lost_sight, len(exchange.request.over)
                events = reader.token_events
                read((record,), other)
                if (
                    begun
                    and reader.token_events == events + 1
                    and reader.chars_in_read < _SHORT
                    and reader.others is None
                    and not reader.tokens_in_read
                    and len(exchange.request.over) == were_over
                ):
                    # As in `Reading.records`, usage in such a read is not looked at before the end.
                    add_time(time_ns)
                    add_key(stream << 8 | _DATA)
                    add_payload(ONE_EVENT[reader.chars_in_read])
                else:
                    lost = exchange.lost_sight and not had_lost_sight
                    over = exchange.request.over
                    self._read(time_ns, stream, reader, events, over, news=lost or len(over) != were_over)
            else:
                exchange = streams.get(stream)
                known = (exchange.facts, exchange.unread) if exchange is not None else None
                read((record,), other)
                if exchange is not None and (exchange.facts, exchange.unread) != known:  # its body was read just now
                    self._sink.record(time_ns, stream, REQUEST_FACTS, request_facts(exchange, senders=self._senders))
                if kind not in _PIECES:
                    self._sink.record(time_ns, stream, kind, _without_text(kind, payload, self._senders))

    def _read(
        self,
        time_ns: int,
        stream: int,
        reader: AnswerReader | RecordedReader,
        events_before: int,
        over: set[int],
        *,
        news: bool,
    ) -> None:
        """``news``: from here on the answer cannot be read, or of its choices others are over."""
        events = reader.token_events - events_before - sum((reader.others or {}).values())
        counted = reader.prompt_tokens is not None or (not reader.token_events and reader.completion_tokens)
        if events or reader.others or reader.tokens_in_read or counted or news:
            self._sink.record(time_ns, stream, _DATA, recorded.read_facts(reader, events, tuple(over)))


def request_facts(exchange: Exchange, most_digests: int | None = None, *, senders: bool = False) -> bytes:
    """What the body said; ``most_digests`` of its beginnings, None: all. ``senders``: who sent it, and its priority."""
    request = exchange.request
    return recorded.encode(
        RecordedRequest(
            model=exchange.facts.model,
            prompt_chars=request.prompt_chars,
            text_only=request.text_only,
            streaming=request.streaming,
            prefix=request.prefix[:most_digests],
            prompt_tokens=request.prompt_tokens if request.prompt_exact else None,
            no_tokens_due=exchange.facts.max_tokens == 0,
            sequences=request.sequences,
            prompts=request.prompts,
            hides_thought=request.hides_thought,
            unread=exchange.unread,
            tenant=request.tenant if senders else "",
            priority=request.priority if senders else 0,
        )
    )


def _without_text(kind: int, payload: bytes, senders: bool) -> bytes:
    """The payload of a record, as far as it is no text. One that nobody can read stays one that nobody can read."""
    if kind in _PLAIN:
        return payload
    try:
        if kind == Kind.REQUEST:
            return encode_payload(recorded.request_head(decode_payload(kind, payload, RequestHead), senders=senders))
        if kind == Kind.RESPONSE:
            return encode_payload(recorded.response_head(decode_payload(kind, payload, ResponseHead)))
    except msgspec.DecodeError:
        return b""
    return payload if kind == Kind.REQUEST_END and len(payload) <= 8 else b""
