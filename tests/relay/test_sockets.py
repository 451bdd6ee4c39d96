"""Options of sockets, and which connections get them."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from tests.relay.peers import LAST_CHUNK, STREAM_HEAD, ScriptedUpstream, post
from tests.relay.running import RunningRelay

from prefillwatch.relay.reactor import Reactor
from prefillwatch.relay.sockets import acknowledge_late, acknowledges_late, prepare
from prefillwatch.relay.upstream import Pool, UpstreamConnection
from prefillwatch.units import NS

HOUR = 3600 * NS


def acknowledges_at_once(opened: socket.socket) -> bool:
    return bool(opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))


def test_a_socket_that_need_not_acknowledge_every_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as opened:
        assert acknowledges_at_once(opened)
        acknowledge_late(opened)
        assert not acknowledges_at_once(opened)


@pytest.fixture
def connection() -> Iterator[UpstreamConnection]:
    """A stream begins on it at HOUR."""
    crashes: list[object] = []
    reactor = Reactor(lambda _callback, error: crashes.append(error))
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as opened:
        prepare(opened)
        connection = UpstreamConnection(reactor, opened, None, lambda: None)
        connection.acknowledge_late(HOUR)
        yield connection
    reactor.release()
    assert not crashes


def silence(connection: UpstreamConnection) -> None:
    """After which the kernel acknowledges at once again."""
    assert connection.socket is not None
    connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def test_a_stream_that_went_well_is_acknowledged_late_again_after_a_silence(connection: UpstreamConnection) -> None:
    assert connection.socket is not None
    connection.acknowledge_late_again(HOUR + NS)
    silence(connection)
    connection.acknowledge_late_again(HOUR + 2 * NS)
    assert not acknowledges_at_once(connection.socket)


@pytest.mark.parametrize("looks", [(NS // 2,), (NS // 2, 2 * NS), (2 * NS, 3 * NS)])
def test_a_server_that_waits_for_acknowledgements_gets_them_at_once(
    connection: UpstreamConnection, looks: tuple[int, ...]
) -> None:
    """It never goes well for a second, whenever we look."""
    assert connection.socket is not None
    if looks[0] < NS:
        connection.acknowledge_late_again(HOUR + looks[0])
    silence(connection)
    for look in looks:
        connection.acknowledge_late_again(HOUR + look)
    assert acknowledges_at_once(connection.socket)


def test_after_each_silence_it_must_go_well_for_a_second_again(connection: UpstreamConnection) -> None:
    assert connection.socket is not None
    connection.acknowledge_late_again(HOUR + NS)
    for look in (2 * NS, 3 * NS):
        silence(connection)
        connection.acknowledge_late_again(HOUR + look)
    assert acknowledges_at_once(connection.socket)


def test_the_next_answer_on_a_connection_begins_anew(connection: UpstreamConnection) -> None:
    assert connection.socket is not None
    connection.acknowledge_late_again(HOUR + NS)
    pool = Pool(connection.reactor, 5.0)
    pool.release(connection, b"")
    assert pool.take() is connection
    silence(connection)
    connection.acknowledge_late_again(HOUR + 2 * NS)
    assert acknowledges_at_once(connection.socket)


def test_unix_sockets_have_nothing_to_acknowledge() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        acknowledge_late(ours)
        assert acknowledges_late(ours)


@pytest.mark.parametrize(
    ("head", "rest", "streams"),
    [
        (STREAM_HEAD, LAST_CHUNK, 1),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n", b"{}", 0),
    ],
    ids=["stream", "json"],
)
def test_streams_are_acknowledged_late(
    relay: RunningRelay,
    upstream: ScriptedUpstream,
    monkeypatch: pytest.MonkeyPatch,
    head: bytes,
    rest: bytes,
    streams: int,
) -> None:
    late: list[UpstreamConnection] = []
    monkeypatch.setattr(UpstreamConnection, "acknowledge_late", lambda connection, _now: late.append(connection))
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.send(head + rest)
    client.exactly(len(head + rest))
    assert len(late) == streams
