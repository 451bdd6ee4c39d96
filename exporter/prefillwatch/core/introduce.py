"""Exchanges that are going on when a segment begins, noted anew, so that it can be played without those before.

Of one without a token, everything is noted again with its own times: what comes of it will be measured in full. One
that streams is noted as one that was running before, with the last token of each of its choices, so that a silence that
began before the segment is a gap in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from prefillwatch.analysis.ledger import Ledger
from prefillwatch.core.exchange import Exchange
from prefillwatch.core.inputs import PacketHead, Record
from prefillwatch.core.noting import FactSink, request_facts
from prefillwatch.core.relays import RelayTap
from prefillwatch.wire import recorded
from prefillwatch.wire.recorded import REQUEST_FACTS, RecordedRead
from prefillwatch.wire.tap import Kind, ResponseHead, encode_payload

#: Of a prompt that is read already, only what others may have in common with it.
_MOST_DIGESTS: Final = 16


def introduce(
    notes: FactSink, now_ns: int, relays: dict[int, RelayTap], ledger: Ledger, *, senders: bool = False
) -> None:
    """One packet for each relay. ``senders``: names of tenants and priorities are kept."""
    for index, relay in relays.items():
        if relay.epoch < 0:
            continue
        begin = notes.records
        records = [
            record
            for stream, each in relay.streams.items()
            for record in _exchange(stream, each, now_ns, ledger, senders)
        ]
        if relay.stats is not None:
            records.append((now_ns, 0, Kind.STATS, encode_payload(relay.stats)))
        for record in sorted(records, key=lambda record: record[0]):
            notes.record(*record)
        dropped = relay.dropped - relay.dropped_before
        notes.packet(now_ns, PacketHead(relay.epoch, relay.sequence, dropped, index, 0, 0), begin=begin)


def _exchange(stream: int, exchange: Exchange, now_ns: int, ledger: Ledger, senders: bool) -> Iterator[Record]:
    request = exchange.request
    resumed = exchange.head.resumed or bool(request.slots)
    received_ns = exchange.life.received_ns or request.received_ns
    # How far it is follows in records of their own.
    head = recorded.request_head(exchange.head, senders=senders)
    head = msgspec.structs.replace(head, resumed=resumed, stage=0, read_ns=0)
    yield received_ns or now_ns, stream, Kind.REQUEST, encode_payload(head)
    if received_ns and request.generating:
        facts = request_facts(exchange, _MOST_DIGESTS if resumed else None, senders=senders)
        yield received_ns, stream, REQUEST_FACTS, facts
    if received_ns and not resumed:
        yield received_ns, stream, Kind.REQUEST_END, b""
    if request.sent_ns:
        yield request.sent_ns, stream, Kind.SENT, b""
    if exchange.status:
        response = ResponseHead(exchange.status, "text/event-stream" if request.streaming else "application/json")
        response = msgspec.structs.replace(response, observed=exchange.reader is not None)
        yield request.sent_ns or now_ns, stream, Kind.RESPONSE, encode_payload(response)
    yield from _last_tokens(stream, exchange, ledger)
    if request.blocked_since_ns:
        yield request.blocked_since_ns, stream, Kind.BLOCKED, b""


def _last_tokens(stream: int, exchange: Exchange, ledger: Ledger) -> Iterator[Record]:
    request = exchange.request
    for choice, slot in request.slots.items():
        last_ns = ledger.book.last_ns(slot)
        if last_ns is None:
            continue
        read = RecordedRead(
            events=0 if choice else 1,
            chars=0,
            others={choice: 1} if choice else None,
            prompt_tokens=request.prompt_tokens if request.prompt_exact else None,
            cached_tokens=request.cached_tokens if request.prompt_exact else None,
            response_id=request.request_id,
            model=exchange.facts.model,
        )
        yield last_ns, stream, Kind.DATA, recorded.encode(read)
