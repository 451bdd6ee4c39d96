"""The observer's end of the taps while it is recorded: notes down what was read, with facts in place of texts.

Every record goes the usual way first, one at a time, and is noted by what it left behind. Where nothing is recorded the
plain reader of taps is at work, and this costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from prefillwatch.analysis.ledger import Ledger
from prefillwatch.analysis.requests import ModelNames
from prefillwatch.observer.exchange import Exchange
from prefillwatch.observer.taps import RelayTap, TapReader
from prefillwatch.observer.usual import Record
from prefillwatch.recorder import facts
from prefillwatch.recorder.chunks import ChunkBuilder, Kind, PacketHead
from prefillwatch.recorder.facts import ANSWER_FACTS, ONE_EVENT, REQUEST_FACTS
from prefillwatch.wire.answer import AnswerReader
from prefillwatch.wire.tap import End, Packet, RequestHead, ResponseHead, decode_payload, encode_payload
from prefillwatch.wire.tap import Kind as Tap

_DATA: Final = int(Tap.DATA)
#: Their payload holds no text.
_PLAIN: Final = frozenset(
    {
        *(Tap.HELLO, Tap.STATS, Tap.LATE, Tap.IN_FLIGHT, Tap.GONE),
        *(Tap.SENT, Tap.BLOCKED, Tap.UNBLOCKED, Tap.SKIPPED, Tap.END),
    }
)
#: Texts, whose facts are told with the record that completes them.
_PIECES: Final = frozenset({Tap.REQUEST_BODY, Tap.DATA_PART})
_SHORT: Final = len(ONE_EVENT)


class TextNotes(TapReader):
    """Notes packets down as they come, texts and all. ``notes`` None: not now."""

    notes: ChunkBuilder | None = None

    def feed(self, data: bytes, now_ns: int) -> Packet | None:
        if self.notes is not None:
            self.notes.entry(Kind.RAW_PACKET, now_ns, data)
        return super().feed(data, now_ns)


class FactNotes(TapReader):
    """Notes facts down. ``notes`` None: not now."""

    def __init__(self, ledger: Ledger, names: ModelNames, ended: Callable[[Exchange, End], None]) -> None:
        super().__init__(ledger, names, ended)
        self.notes: ChunkBuilder | None = None
        self._lost = 0

    def feed(self, data: bytes, now_ns: int) -> Packet | None:
        notes = self.notes
        if notes is None:
            return super().feed(data, now_ns)
        begin = notes.records
        packet = super().feed(data, now_ns)
        if packet is None:
            notes.entry(Kind.PACKET, now_ns)  # one that cannot be read
        else:
            notes.packet(now_ns, PacketHead.of(packet), begin=begin, lost=self._lost)
        return packet

    def _follow(self, relay: RelayTap, packet: Packet, now_ns: int) -> None:
        before = self.notes.records if self.notes is not None else 0
        super()._follow(relay, packet, now_ns)
        self._lost = self.notes.records - before if self.notes is not None else 0

    def _finish(self, relay: RelayTap, stream: int, exchange: Exchange, time_ns: int, end: End) -> None:
        super()._finish(relay, stream, exchange, time_ns, end)
        if self.notes is not None and exchange.reader is not None:
            self.notes.record(time_ns, stream, ANSWER_FACTS, facts.answer_facts(exchange.reader))

    def _packet(self, relay: RelayTap, packet: Packet) -> None:
        if self.notes is None:
            super()._packet(relay, packet)
        else:
            relay.usual.forget()  # each record is to be seen
            self._records(relay, packet)

    def _records(self, relay: RelayTap, records: Iterable[Record]) -> None:
        if self.notes is None:
            super()._records(relay, records)
            return
        streams, take = relay.streams, super()._records
        add_time, add_key, add_payload = self.notes.add_record
        for record in records:
            time_ns, stream, kind, payload = record
            if kind == _DATA:
                exchange = streams.get(stream)
                if exchange is None or exchange.reader is None:
                    continue
                reader, begun = exchange.reader, exchange.slot >= 0
                had_lost_sight, were_over = exchange.lost_sight, len(exchange.request.over)
                events = reader.token_events
                take(relay, (record,))
                if (
                    begun
                    and reader.token_events == events + 1
                    and reader.chars_in_read < _SHORT
                    and reader.others is None
                    and not reader.tokens_in_read
                    and len(exchange.request.over) == were_over
                ):
                    # As in the base class, usage in such a read is not looked at before the end.
                    add_time(time_ns)
                    add_key(stream << 8 | _DATA)
                    add_payload(ONE_EVENT[reader.chars_in_read])
                else:
                    lost = exchange.lost_sight and not had_lost_sight
                    over = exchange.request.over
                    self._note_read(time_ns, stream, reader, events, over, news=lost or len(over) != were_over)
            else:
                exchange = streams.get(stream)
                known = (exchange.facts, exchange.unread) if exchange is not None else None
                take(relay, (record,))
                if exchange is not None and (exchange.facts, exchange.unread) != known:  # its body was read just now
                    self.notes.record(time_ns, stream, REQUEST_FACTS, facts.request_facts(exchange))
                if kind not in _PIECES:
                    self.notes.record(time_ns, stream, kind, _without_text(kind, payload))

    def _note_read(
        self, time_ns: int, stream: int, reader: AnswerReader, events_before: int, over: set[int], *, news: bool
    ) -> None:
        """``news``: from here on the answer cannot be read, or of its choices others are over."""
        events = reader.token_events - events_before - sum((reader.others or {}).values())
        if events or reader.others or reader.tokens_in_read or reader.prompt_tokens is not None or news:
            assert self.notes is not None
            self.notes.record(time_ns, stream, _DATA, facts.read_facts(reader, events, tuple(over)))


def _without_text(kind: int, payload: bytes) -> bytes:
    """The payload of a record, as far as it is no text. One that nobody can read stays one that nobody can read."""
    if kind in _PLAIN:
        return payload
    try:
        if kind == Tap.REQUEST:
            return encode_payload(facts.request_head(decode_payload(kind, payload, RequestHead)))
        if kind == Tap.RESPONSE:
            return encode_payload(facts.response_head(decode_payload(kind, payload, ResponseHead)))
    except msgspec.DecodeError:
        return b""
    return payload if kind == Tap.REQUEST_END and len(payload) <= 8 else b""
