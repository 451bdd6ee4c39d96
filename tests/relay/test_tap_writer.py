"""Packets to the observer: in time, complete, and dropped rather than waited for."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from tests.kit.eventually import eventually
from tests.relay.peers import LAST_CHUNK, STREAM_HEAD, ScriptedUpstream, chunk, event, post
from tests.relay.running import RunningRelay

from prefillwatch.wire.tap import MAX_PACKET_BYTES, MAX_PAYLOAD_BYTES, Finish, Kind

MIB = 2**20


def test_long_reads_come_in_parts_of_the_same_time(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    line = b"data: " + bytes(range(32, 127)) * 8000 + b"\n\n"
    server.send(STREAM_HEAD + chunk(line) + LAST_CHUNK)
    client.exactly(len(STREAM_HEAD + chunk(line) + LAST_CHUNK))
    assert relay.tap.end().finish is Finish.COMPLETE
    assert relay.tap.payload() == line
    data = [record for record in relay.tap.records if record[2] in (Kind.DATA_PART, Kind.DATA)]
    assert all(len(record[3]) <= MAX_PAYLOAD_BYTES for record in data)
    for record, after in itertools.pairwise(data):
        assert record[2] == Kind.DATA or record[0] == after[0]
    assert all(len(packet._body) <= MAX_PACKET_BYTES for packet in relay.tap.packets)


def test_an_observer_that_does_not_read_costs_records_not_tokens(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start()
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    server.send(STREAM_HEAD)
    client.head()
    piece = chunk(b"data: " + b"x" * 7_000 + b"\n\n")
    for _ in range(3500):  # 24 MiB; 16 of them wait, the rest is dropped
        server.send(piece)
        assert client.exactly(len(piece)) == piece
    assert eventually(lambda: relay.relay.tap.dropped > 0)
    assert relay.relay.tap._queued_bytes <= 16 * MIB
    assert eventually(lambda: len(relay.tap.read()) > 100 and not relay.relay.tap._queued_bytes)
    server.send(chunk(event(1)) + LAST_CHUNK)
    client.exactly(len(chunk(event(1)) + LAST_CHUNK))
    assert relay.tap.end().finish is Finish.COMPLETE
    sequences = [packet.sequence for packet in relay.tap.packets]
    assert sequences == sorted(sequences)
    assert sequences[-1] - sequences[0] + 1 > len(sequences)  # the hole shows
    assert relay.tap.packets[-1].dropped == relay.relay.tap.dropped


def test_a_new_observer_does_not_get_what_waited_for_the_old_one(
    relay: RunningRelay, upstream: ScriptedUpstream
) -> None:
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    server.send(STREAM_HEAD)
    client.head()
    piece = chunk(b"data: " + b"x" * 60_000 + b"\n\n")
    for _ in range(40):
        server.send(piece)
        client.exactly(len(piece))
    assert eventually(lambda: relay.relay.tap._queued_bytes > MIB)
    relay.call(relay.relay.announce)
    assert eventually(lambda: relay.relay.tap._queued_bytes < MIB)
    hellos = relay.tap.wait(Kind.HELLO, stream=0, count=2)
    assert len(hellos) == 2
    assert relay.tap.request().resumed is True
    assert relay.relay.tap.dropped > 10
