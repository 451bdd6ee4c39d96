"""Options of sockets, and which connections get them."""

from __future__ import annotations

import socket

import pytest
from tests.relay.peers import LAST_CHUNK, STREAM_HEAD, ScriptedUpstream, post
from tests.relay.running import RunningRelay

from prefillwatch.relay.sockets import acknowledge_late
from prefillwatch.relay.upstream import UpstreamConnection


def acknowledges_at_once(opened: socket.socket) -> bool:
    return bool(opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))


def test_a_socket_that_need_not_acknowledge_every_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as opened:
        assert acknowledges_at_once(opened)
        acknowledge_late(opened)
        assert not acknowledges_at_once(opened)


def test_unix_sockets_have_nothing_to_acknowledge() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        acknowledge_late(ours)


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
    monkeypatch.setattr(UpstreamConnection, "acknowledge_late", lambda connection: late.append(connection))
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.send(head + rest)
    client.exactly(len(head + rest))
    assert len(late) == streams
