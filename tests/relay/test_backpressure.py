"""Slow readers and slow upstreams: bounded memory, and other streams go on."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.kit.eventually import eventually
from tests.relay.peers import LAST_CHUNK, STREAM_HEAD, Peer, ScriptedUpstream, chunk, event, post
from tests.relay.running import RelayProcess, RunningRelay

from prefillwatch.relay.client_state import ClientState
from prefillwatch.wire.tap import Finish, Kind

MIB = 2**20


def test_reading_from_upstream_pauses_while_the_client_takes_nothing(
    relay: RunningRelay, upstream: ScriptedUpstream
) -> None:
    client = relay.connect(receive_buffer=65536)
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    server.send(STREAM_HEAD)
    piece = chunk(b"data: " + b"x" * 60_000 + b"\n\n")
    taken = server.send_until_blocked(piece)
    assert taken < 64 * MIB  # the kernel's buffers and one read of ours
    relay.tap.wait(Kind.BLOCKED)
    (connection,) = relay.relay.clients
    assert connection.unsent is not None
    assert len(connection.unsent) <= 256 * 1024

    missing = -taken % len(piece)
    rest = threading.Thread(target=server.send, args=(piece[len(piece) - missing :] + LAST_CHUNK,))
    rest.start()
    sent = STREAM_HEAD + piece * ((taken + missing) // len(piece)) + LAST_CHUNK
    assert client.exactly(len(sent)) == sent
    rest.join()
    assert relay.tap.end().finish is Finish.COMPLETE
    blocked, unblocked = relay.tap.wait(Kind.BLOCKED), relay.tap.wait(Kind.UNBLOCKED)
    assert len(blocked) == len(unblocked)
    assert all(start[0] < end[0] for start, end in zip(blocked, unblocked, strict=True))


def test_tokens_pause_and_go_on_one_by_one(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect(receive_buffer=4096)
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    server.send(STREAM_HEAD)
    (connection,) = relay.relay.clients
    sent = 0
    while connection.unsent is None:
        server.send(chunk(event(sent)))
        sent += 1
    for _ in range(10):  # these wait in the kernel
        server.send(chunk(event(sent)))
        sent += 1
    stream = STREAM_HEAD + b"".join(chunk(event(number)) for number in range(sent))
    assert client.exactly(len(stream)) == stream
    for number in range(10):
        server.send(chunk(event(number)))
        assert client.exactly(len(chunk(event(number)))) == chunk(event(number))
    server.send(LAST_CHUNK)
    assert relay.tap.end().finish is Finish.COMPLETE
    assert relay.tap.payload() == b"".join(map(event, [*range(sent), *range(10)]))
    assert len(relay.tap.wait(Kind.BLOCKED)) == len(relay.tap.wait(Kind.UNBLOCKED))


def test_interim_answers_pause_too(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect(receive_buffer=4096)
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: %b\r\n\r\n" % (b"x" * 60_000)
    server.send_until_blocked(hint)
    (connection,) = relay.relay.clients
    assert connection.unsent is not None
    assert len(connection.unsent) < 300_000
    client.close()
    assert relay.tap.end().finish is Finish.CLIENT_CLOSED


def test_a_blocked_client_that_leaves_is_noticed(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect(receive_buffer=4096)
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    server.send(STREAM_HEAD)
    server.send_until_blocked(chunk(b"data: " + b"x" * 60_000 + b"\n\n"))
    relay.tap.wait(Kind.BLOCKED)
    client.close()
    assert server.end() == "reset"
    assert relay.tap.end().finish is Finish.CLIENT_CLOSED


@pytest.mark.parametrize("until_close", [False, True])
def test_an_upstream_that_ends_while_the_client_is_blocked(
    relay: RunningRelay, upstream: ScriptedUpstream, until_close: bool
) -> None:
    client = relay.connect(receive_buffer=65536)
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        if until_close
        else STREAM_HEAD
    )
    piece = b"data: " + b"x" * 30_000 + b"\n\n"
    framed = piece if until_close else chunk(piece)
    server.send(head)
    pieces = 0
    (connection,) = relay.relay.clients
    while connection.unsent is None:
        server.send(framed)
        pieces += 1
        server.is_silent(0.001)
    server.send(framed if until_close else framed + LAST_CHUNK)  # into the kernel of the relay, which does not read
    server.close()
    answer = head + framed * (pieces + 1) + (b"" if until_close else LAST_CHUNK)
    assert client.exactly(len(answer)) == answer
    if until_close:
        assert client.rest() == b""
    assert relay.tap.end().finish is Finish.COMPLETE


def test_other_streams_go_on_beside_a_blocked_one(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    slow = relay.connect(receive_buffer=4096)
    slow.send(post())
    flooding = upstream.accept()
    flooding.head()
    flooding.exactly(15)
    flooding.send(STREAM_HEAD)
    flooding.send_until_blocked(chunk(b"x" * 60_000))

    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.send(STREAM_HEAD)
    client.head()
    for number in range(50):
        server.send(chunk(event(number)))
        assert client.exactly(len(chunk(event(number)))) == chunk(event(number))


def test_a_slow_reader_of_200_megabytes_costs_no_memory(
    start_process: Callable[..., RelayProcess], upstream: ScriptedUpstream
) -> None:
    relay = start_process()
    relay.tap.stats()
    before = relay.resident_bytes()
    client = relay.connect(receive_buffer=65536)
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    piece = b"x" * MIB  # event-stream without a single line end
    sender = threading.Thread(target=_send_many, args=(server, STREAM_HEAD, chunk(piece), 200))
    sender.start()
    client.head()
    peak = 0
    for _ in range(200):
        assert client.exactly(len(chunk(piece))) == chunk(piece)
        peak = max(peak, relay.resident_bytes())
        relay.tap.read()
        relay.tap.records.clear()
    assert client.exactly(5) == LAST_CHUNK
    sender.join()
    assert peak - before < 30 * MIB  # the queue of the tap may hold 16 of them


def _send_many(server: Peer, head: bytes, piece: bytes, times: int) -> None:
    server.send(head)
    for _ in range(times):
        server.send(piece)
    server.send(LAST_CHUNK)


def test_an_upstream_that_takes_the_request_slowly(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    body = bytes(range(256)) * (32 * 4096)  # 32 MiB
    client = relay.connect()
    client.send(post(body=body))
    server = upstream.accept()
    assert eventually(lambda: relay.relay.dialer.open == 1)
    server.head()
    assert "SENT" not in relay.tap.story()
    assert server.exactly(len(body)) == body
    server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    client.head()
    assert relay.tap.end().finish is Finish.COMPLETE
    assert "SENT" in relay.tap.story()


ENDLESS_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
OLD_CLIENT = b"POST /v1/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}"
PIECE = b"data: " + b"x" * 30_000 + b"\n\n"
#: Request, response head, a piece of the body as upstream sends it and as the client gets it, how upstream breaks off,
#: how the client's connection ends.
BROKEN_OFF = {
    "chunked": (post(), STREAM_HEAD, chunk(PIECE), chunk(PIECE), "close", "closed"),
    "chunked, reset": (post(), STREAM_HEAD, chunk(PIECE), chunk(PIECE), "reset", "closed"),
    "ends by closing": (post(), ENDLESS_HEAD, PIECE, PIECE, "reset", "reset"),
    "HTTP/1.0": (OLD_CLIENT, STREAM_HEAD, chunk(PIECE), PIECE, "close", "reset"),
    "HTTP/1.0, reset": (OLD_CLIENT, STREAM_HEAD, chunk(PIECE), PIECE, "reset", "reset"),
}


@pytest.mark.parametrize("case", BROKEN_OFF)
def test_what_is_held_when_an_answer_breaks_off_still_reaches_the_client(
    relay: RunningRelay, upstream: ScriptedUpstream, case: str
) -> None:
    request, head, sent, passed, how, end = BROKEN_OFF[case]
    relay.relay.lingering._duration_ns = 1  # counts from when all has left
    client = relay.connect(receive_buffer=4096)
    client.send(request)
    server = upstream.accept()
    server.head()
    server.send(head)
    (connection,) = relay.relay.clients
    pieces = 0
    while connection.unsent is None:  # we hold some, and the kernel holds more
        server.send(sent)
        pieces += 1
        server.is_silent(0.001)
    getattr(server, how)()
    client.head()
    assert client.exactly(len(passed) * pieces) == passed * pieces
    assert client.end() == end
    assert relay.tap.end().finish is Finish.UPSTREAM_TRUNCATED
    client.close()
    assert eventually(lambda: not relay.relay.clients)


def test_a_client_that_takes_nothing_of_what_is_held_is_given_up(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(client_write_timeout=0.3)
    client = relay.connect(receive_buffer=4096)
    client.send(OLD_CLIENT)
    server = upstream.accept()
    server.head()
    server.send(STREAM_HEAD + chunk(PIECE) * 5)  # fits into the kernel, which does not get rid of it
    relay.tap.wait(Kind.DATA)
    server.close()
    assert relay.tap.end().finish is Finish.UPSTREAM_TRUNCATED
    (connection,) = relay.relay.clients
    assert connection.state is ClientState.BREAKING
    assert eventually(lambda: not relay.relay.clients)
    assert len(relay.relay.flushing) == 0
    assert client.end() == "reset"


def test_what_is_cut_while_the_kernel_holds_some_of_it_does_not_look_complete(
    relay: RunningRelay, upstream: ScriptedUpstream
) -> None:
    client = relay.connect(receive_buffer=4096)
    client.send(OLD_CLIENT)
    server = upstream.accept()
    server.head()
    server.send(STREAM_HEAD + chunk(PIECE) * 5)
    relay.tap.wait(Kind.DATA)
    relay.call(relay.relay.drain)
    relay.call(relay.relay.cut)
    assert relay.tap.end().finish is Finish.CUT
    assert client.end() == "reset"
