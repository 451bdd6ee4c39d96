"""What a relay tells an observer that asks, and what it leaves out where there is no room for all."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

import pytest
from tests.kit.eventually import PATIENCE_S, eventually
from tests.relay.peers import LAST_CHUNK, STREAM_HEAD, Peer, ScriptedUpstream, chunk, event, post
from tests.relay.running import RunningRelay

from prefillwatch.relay import tap_writer
from prefillwatch.wire.in_flight import BLOCKED, Ask, InFlight, Stage, decode_in_flight, encode_asks, spread
from prefillwatch.wire.tap import Finish, Kind

MIB = 2**20


def ask(relay: RunningRelay, what: Ask, *streams: int, epoch: int | None = None) -> None:
    relay.tap.wait(Kind.HELLO, stream=0)
    told = relay.tap.packets[-1].epoch
    for packet in encode_asks(what, told if epoch is None else epoch, streams):
        relay.tap.socket.send(packet)


def listed(relay: RunningRelay, count: int = 1) -> list[InFlight]:
    return [decode_in_flight(payload) for *_, payload in relay.tap.wait(Kind.IN_FLIGHT, stream=0, count=count)]


def streaming(relay: RunningRelay, upstream: ScriptedUpstream) -> tuple[Peer, Peer]:
    """A client and the server that has begun to answer it."""
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    server.send(STREAM_HEAD)
    client.head()
    return client, server


def test_the_list_says_how_far_each_exchange_is(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    streaming(relay, upstream)
    _, decoding = streaming(relay, upstream)
    decoding.send(chunk(event(1)))
    relay.tap.wait(Kind.DATA, stream=2)
    waiting = relay.connect()
    waiting.send(post())
    upstream.accept()
    relay.tap.wait(Kind.SENT, stream=3)
    half = relay.connect()
    half.send(post()[:-3])
    relay.tap.wait(Kind.REQUEST, stream=4)
    ask(relay, Ask.LIST)
    (told,) = listed(relay)
    assert (told.after, told.until) == (0, 4)
    assert list(told.streams) == [1, 2, 3, 4]
    assert list(told.stages) == [Stage.ANSWERED, Stage.ANSWERED, Stage.SENT, Stage.RECEIVING]
    assert [bool(read_ns) for read_ns in told.read_ns] == [False, True, False, False]


def test_a_client_that_takes_nothing_shows_in_the_list(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    _, server = streaming(relay, upstream)
    server.socket.setblocking(False)

    def blocked() -> bool:
        with contextlib.suppress(BlockingIOError):
            server.socket.send(chunk(b"data: " + b"x" * 60_000 + b"\n\n"))
        return Kind.BLOCKED in {record[2] for record in relay.tap.read()}

    assert eventually(blocked)
    ask(relay, Ask.LIST)
    assert eventually(lambda: listed(relay)[-1].stages[0] == Stage.ANSWERED | BLOCKED)


def test_what_is_over_is_in_no_list_and_the_digest_knows(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client, server = streaming(relay, upstream)
    streaming(relay, upstream)
    server.send(chunk(event(1)) + LAST_CHUNK)
    relay.tap.end(1)
    ask(relay, Ask.LIST)
    (told,) = listed(relay)
    assert (list(told.streams), told.until) == ([2], 2)
    assert eventually(lambda: relay.tap.stats().digest == spread(2))
    assert relay.tap.stats().exchanges == 1
    client.close()


def test_a_long_list_comes_in_slices_that_leave_nothing_out(
    relay: RunningRelay, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prefillwatch.relay.relay.SLICE", 2)
    for _ in range(5):
        streaming(relay, upstream)
    ask(relay, Ask.LIST)
    slices = listed(relay, 3)
    assert [(each.after, each.until, list(each.streams)) for each in slices] == [
        (0, 2, [1, 2]),
        (2, 4, [3, 4]),
        (4, 5, [5]),
    ]


def test_an_exchange_is_told_again_by_its_id(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    _, server = streaming(relay, upstream)
    server.send(chunk(event(1)))
    (read,) = relay.tap.wait(Kind.DATA)
    ask(relay, Ask.REPORT, 1, 77)
    relay.tap.wait(Kind.REQUEST, count=2)
    again = relay.tap.request()
    assert (again.resumed, again.stage, again.body_size, again.read_ns) == (True, Stage.ANSWERED, 15, read[0])
    assert relay.tap.story().count("RESPONSE") == 2
    assert not relay.faults


def test_an_answer_that_nobody_can_read_is_not_copied_on(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client, server = streaming(relay, upstream)
    piece = chunk(event(1))
    server.send(piece)
    relay.tap.wait(Kind.DATA)
    ask(relay, Ask.STOP, 1)
    size = 0

    def told_by_size() -> bool:
        nonlocal size
        server.send(piece)
        assert client.exactly(len(piece))
        size += len(event(1))
        return Kind.SKIPPED in {record[2] for record in relay.tap.read()}

    client.exactly(len(piece))
    assert eventually(told_by_size)
    shown = len(relay.tap.payload())
    for _ in range(50):
        server.send(piece)
        assert client.exactly(len(piece)) == piece
    server.send(LAST_CHUNK)
    client.exactly(len(LAST_CHUNK))
    assert relay.tap.end().finish is Finish.COMPLETE
    assert len(relay.tap.payload()) == shown
    told = sum(int.from_bytes(record[3], "little") for record in relay.tap.wait(Kind.SKIPPED))
    assert shown + told == size + 51 * len(event(1))


def test_asks_of_another_process_life_and_junk_are_not_heard(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    streaming(relay, upstream)
    ask(relay, Ask.STOP, 1, epoch=1)
    for junk in (b"\xff", b"\x02\x00", b"\x09" + bytes(4), b"\x01" + bytes(9)):
        relay.tap.socket.send(junk)
    ask(relay, Ask.LIST)
    assert list(listed(relay)[0].streams) == [1]
    assert not relay.relay.exchanges[1].core.answer.hidden  # type: ignore[union-attr]
    assert not relay.faults


def flood(client: Peer, server: Peer, piece: bytes, count: int) -> None:
    for _ in range(count):
        server.send(piece)
        assert client.exactly(len(piece)) == piece


def test_what_begins_and_ends_is_told_whatever_is_dropped(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start()
    client, server = streaming(relay, upstream)
    flood(client, server, chunk(b"data: " + b"x" * 7_000 + b"\n\n"), 3200)
    assert eventually(lambda: relay.relay.tap.dropped > 0)
    other, its_server = streaming(relay, upstream)
    for number in range(30):
        if number:  # both connections are kept
            other.send(post())
            its_server.head()
            its_server.exactly(15)
            its_server.send(STREAM_HEAD)
            other.head()
        its_server.send(chunk(event(1)) + LAST_CHUNK)
        other.exactly(len(chunk(event(1)) + LAST_CHUNK))
    server.send(LAST_CHUNK)
    client.exactly(len(LAST_CHUNK))
    for stream in range(1, 32):
        assert relay.tap.end(stream).finish is Finish.COMPLETE
    assert relay.tap.story(2) == ["REQUEST", "SKIPPED", "REQUEST_END", "SENT", "RESPONSE", "SKIPPED", "END"]
    whole = ["REQUEST", "REQUEST_END", "SENT", "RESPONSE", "END"]
    for stream in range(2, 32):  # once the tap is read, bodies find room again
        assert [kind for kind in relay.tap.story(stream) if kind in whole] == whole
    assert eventually(lambda: relay.tap.read() and relay.tap.packets[-1].dropped == relay.relay.tap.dropped)


def test_a_bulky_answer_does_not_cost_the_tokens_of_others(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client, server = streaming(relay, upstream)
    other, its_server = streaming(relay, upstream)
    bulk = chunk(b"x" * 60_000)
    for _ in range(500):  # 29 MiB without a line end, while nobody reads the tap
        flood(client, server, bulk, 1)
        if _ % 10 == 0:
            flood(other, its_server, chunk(event(1)), 1)
    assert relay.relay.tap.dropped == 0
    assert eventually(lambda: relay.tap.read() and not relay.relay.tap._queued_bytes)
    assert eventually(lambda: relay.tap.payload(stream=2) == event(1) * 50)
    told = sum(int.from_bytes(record[3], "little") for record in relay.tap.wait(Kind.SKIPPED))
    assert eventually(lambda: len(relay.tap.payload()) + told == 500 * 60_000)
    assert relay.relay.tap.skipped_bytes == told


def test_what_a_stopped_observer_costs_is_bounded(
    relay: RunningRelay, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tap_writer, "BODY_ROOM", MIB)
    monkeypatch.setattr(tap_writer, "BOOK_ROOM", MIB // 2)
    tap = relay.relay.tap

    def storm() -> None:
        for stream in range(1000, 9000):
            tap.add(0, stream, Kind.REQUEST, bytes(200))
            tap.add_data(0, stream, bytes(100))
            tap.add(0, stream, Kind.END, bytes(10))
        tap.flush()

    stormed = threading.Event()
    for _ in range(4):
        relay.call(storm)
    relay.call(stormed.set)
    assert stormed.wait(PATIENCE_S)
    assert tap.dropped > 20
    assert tap._queued_bytes <= MIB * 3 // 2
    assert tap._builder.size <= 2**17
    records = relay.tap.read()
    assert eventually(lambda: relay.tap.read() and not tap._queued_bytes)
    assert {record[2] for record in records} > {Kind.REQUEST, Kind.END}
    client, server = streaming(relay, upstream)
    flood(client, server, chunk(event(1)), 1)
    assert eventually(lambda: relay.tap.payload(stream=1) == event(1))


def test_a_new_observer_gets_beginnings_and_ends_that_waited_for_the_old_one(
    relay: RunningRelay, upstream: ScriptedUpstream
) -> None:
    client, server = streaming(relay, upstream)
    flood(client, server, chunk(b"data: " + b"x" * 7_000 + b"\n\n"), 400)
    assert eventually(lambda: relay.relay.tap._queued_bytes > MIB)
    other, its_server = streaming(relay, upstream)
    its_server.send(chunk(event(1)) + LAST_CHUNK)
    other.exactly(len(chunk(event(1)) + LAST_CHUNK))
    assert eventually(lambda: 2 not in relay.relay.exchanges)
    relay.call(relay.relay.tap.flush)
    relay.call(relay.relay.announce)
    assert eventually(lambda: relay.relay.tap._queued_bytes < MIB)
    flood(client, server, chunk(event(2)), 1)
    assert relay.tap.end(2).finish is Finish.COMPLETE
    assert relay.tap.story(2) == ["REQUEST", "SKIPPED", "REQUEST_END", "SENT", "RESPONSE", "SKIPPED", "END"]
    assert relay.tap.wait(Kind.REQUEST, stream=1, count=2)
    assert eventually(lambda: relay.tap.payload(stream=1).endswith(event(2)))
    sequences = [packet.sequence for packet in relay.tap.packets]
    assert sequences == list(range(1, len(sequences) + 1))  # nothing but bodies is missing
