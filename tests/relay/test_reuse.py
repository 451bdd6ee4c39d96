"""Connections to upstream that are kept: when they are used again, and what happens when one is dead."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.kit.eventually import eventually
from tests.relay.peers import (
    STREAM_HEAD,
    Peer,
    ScriptedUpstream,
    chunk,
    event,
    get,
    never_accepting,
    post,
)
from tests.relay.running import RunningRelay

from prefillwatch.wire.tap import Finish, Kind

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def warm(relay: RunningRelay, upstream: ScriptedUpstream, answer: bytes = OK) -> tuple[Peer, Peer]:
    """A client whose first request is answered, and the connection that served it."""
    client = relay.connect()
    client.send(get())
    server = upstream.accept()
    server.head()
    server.send(answer)
    client.until(b"ok")
    return client, server


def test_a_connection_is_used_again_by_whoever_comes_next(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    _, server = warm(relay, upstream)
    assert eventually(lambda: len(relay.relay.pool) == 1)
    other = relay.connect()
    other.send(get("/other"))
    assert server.head().startswith(b"GET /other ")


def test_the_youngest_connection_is_used_first(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    clients, servers = [], []
    for _ in range(3):
        client = relay.connect()
        client.send(get())
        server = upstream.accept()
        server.head()
        clients.append(client)
        servers.append(server)
    for number in (0, 2, 1):
        servers[number].send(OK)
        clients[number].until(b"ok")
    assert eventually(lambda: len(relay.relay.pool) == 3)
    clients[0].send(get("/last"))
    assert servers[1].head().startswith(b"GET /last ")


def test_an_idle_connection_is_closed_in_time(start: Callable[..., RunningRelay], upstream: ScriptedUpstream) -> None:
    relay = start(upstream_keepalive=0.1)
    _, server = warm(relay, upstream)
    assert server.end() == "closed"
    assert len(relay.relay.pool) == 0


def test_a_limit_that_upstream_announces_counts(start: Callable[..., RunningRelay], upstream: ScriptedUpstream) -> None:
    relay = start(upstream_keepalive=100)
    _, server = warm(relay, upstream, b"HTTP/1.1 200 OK\r\nKeep-Alive: max=5, timeout=1\r\nContent-Length: 2\r\n\r\nok")
    assert server.end() == "closed"  # a second's limit leaves no time that is surely safe


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokjunk",
    ],
)
def test_a_connection_that_is_not_clean_is_not_kept(
    relay: RunningRelay, upstream: ScriptedUpstream, answer: bytes
) -> None:
    client, server = warm(relay, upstream, answer)
    assert server.end() in ("closed", "reset")
    client.send(get("/next"))
    assert upstream.accept().head().startswith(b"GET /next ")


def test_a_limit_that_upstream_keeps_to_is_kept_clear_of(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(upstream_keepalive=100)
    for _ in range(3):
        _, server = warm(relay, upstream)
        assert server.is_silent(0.6)
        server.close()
        assert eventually(lambda: len(relay.relay.pool) == 0)
    client, server = warm(relay, upstream)
    assert server.is_silent(0.55)
    client.send(post())
    upstream.accept().head()
    assert server.end() == "closed"


def test_where_upstream_closes_after_each_answer_nothing_is_kept(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    """It did not say so: a request that follows at once would meet the end of the connection."""
    relay = start(upstream_keepalive=100)
    for _ in range(3):
        _, server = warm(relay, upstream)
        server.close()
        assert eventually(lambda: len(relay.relay.pool) == 0)
        time.sleep(0.55)  # closed at one moment, they would be one restart
    client, server = warm(relay, upstream)
    client.send(post())
    upstream.accept().head()
    assert server.end() == "closed"


def test_a_kept_connection_that_closes_or_speaks_is_dropped(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    _, server = warm(relay, upstream)
    server.close()
    assert eventually(lambda: len(relay.relay.pool) == 0)
    _, server = warm(relay, upstream)
    server.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
    assert eventually(lambda: len(relay.relay.pool) == 0)
    assert eventually(lambda: relay.relay.dialer.open == 0)


REPEATABLE = [
    get("/x"),
    post(),
    post("/v1/messages"),
    post("/prefix/v1/chat/completions?a=b"),
    b"PUT / HTTP/1.1\r\nHost: a\r\n\r\n",
]


@pytest.mark.parametrize("request_bytes", REPEATABLE)
def test_a_request_is_repeated_when_a_kept_connection_dies_under_it(
    relay: RunningRelay, upstream: ScriptedUpstream, request_bytes: bytes
) -> None:
    client, server = warm(relay, upstream)
    client.send(request_bytes)
    server.head()
    server.reset()  # the idle limit of the server and our request met on the way
    again = upstream.accept()
    again.head()
    again.send(OK)
    assert client.until(b"ok") == OK
    assert relay.tap.end(2).finish is Finish.COMPLETE
    relay.tap.wait(Kind.SENT, stream=2, count=2)
    assert eventually(lambda: relay.relay.retries == 1)


def test_the_repeated_body_is_the_same(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client, server = warm(relay, upstream)
    body = bytes(range(256)) * 4096
    client.send(post(body=body))
    server.head()
    server.close()
    again = upstream.accept()
    again.head()
    assert again.exactly(len(body)) == body
    assert eventually(lambda: relay.tap.payload(Kind.REQUEST_BODY, 2) == body)  # told once, not twice


def test_a_request_is_repeated_only_once(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client, server = warm(relay, upstream)
    client.send(post())
    server.head()
    server.reset()
    again = upstream.accept()
    again.head()
    again.reset()
    assert client.head().startswith(b"HTTP/1.1 502 ")
    assert upstream.nobody_came(0.05)
    end = relay.tap.end(2)
    assert (end.finish, end.reason) == (Finish.UPSTREAM_UNREACHABLE, "reset")


def test_a_request_on_a_new_connection_is_not_repeated(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.close()
    assert client.head().startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert upstream.nobody_came(0.05)


def test_a_request_that_ran_for_a_while_is_not_repeated(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client, server = warm(relay, upstream)
    client.send(post())
    server.head()
    server.exactly(15)
    assert client.is_silent(1.1)
    server.close()
    assert client.head().startswith(b"HTTP/1.1 502 ")
    assert upstream.nobody_came(0.05)


NEVER_REPEATED = [
    *(
        method + b" /v1/files HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"
        for method in (b"POST", b"PATCH", b"BREW")
    ),
    post("/v1/responses", b'{"store":true,"background":true}'),
    post("/v1/threads/t/messages"),
    post("/completions"),
]


@pytest.mark.parametrize("request_bytes", NEVER_REPEATED)
def test_what_must_not_be_repeated_never_goes_to_a_kept_connection(
    relay: RunningRelay, upstream: ScriptedUpstream, request_bytes: bytes
) -> None:
    client, kept = warm(relay, upstream)
    client.send(request_bytes)
    server = upstream.accept()
    server.head()
    server.close()
    assert client.head().startswith(b"HTTP/1.1 502 ")
    assert kept.is_silent()


def test_a_prompt_that_was_read_before_the_connection_ended_is_not_sent_again(
    relay: RunningRelay, upstream: ScriptedUpstream
) -> None:
    client, server = warm(relay, upstream)
    client.send(post())
    server.head()
    server.exactly(15)
    server.close()
    assert client.head().startswith(b"HTTP/1.1 502 ")
    assert upstream.nobody_came(0.05)
    assert relay.relay.retries == 0


def test_what_is_idempotent_is_sent_again_even_then(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client, server = warm(relay, upstream)
    client.send(get("/x"))
    server.head()
    server.close()
    again = upstream.accept()
    again.head()
    again.send(OK)
    assert client.until(b"ok") == OK


def closed_while_taken(relay: RunningRelay, server: Peer) -> None:
    """Have the server close the kept connection when the relay has just found it open."""
    pool = relay.relay.pool
    original = pool.take

    def take() -> Any:
        connection = original()
        server.close()
        return connection

    pool.take = take  # type: ignore[method-assign]


def test_a_prompt_that_crosses_the_end_of_a_kept_connection_is_sent_again(
    relay: RunningRelay, upstream: ScriptedUpstream
) -> None:
    client, server = warm(relay, upstream)
    closed_while_taken(relay, server)
    client.send(post())
    again = upstream.accept()
    again.head()
    again.send(OK)
    assert client.until(b"ok") == OK
    assert relay.relay.retries == 1


@pytest.mark.parametrize("size", [10, 4 * 2**20])
def test_a_prompt_that_waited_unread_when_its_connection_was_closed_is_sent_again(
    relay: RunningRelay, upstream: ScriptedUpstream, size: int
) -> None:
    client, server = warm(relay, upstream)
    client.send(post(body=b"x" * size))
    assert server.socket.recv(1, socket.MSG_PEEK)  # it has arrived; the server's timer fires before it is looked at
    server.close()
    again = upstream.accept()
    again.head()
    assert again.exactly(size) == b"x" * size
    again.send(OK)
    assert client.until(b"ok") == OK


def test_the_same_over_unix_sockets(start: Callable[..., RunningRelay], tmp_path: Path) -> None:
    with closing(ScriptedUpstream.on_unix(str(tmp_path / "upstream"))) as upstream:
        relay = start(upstream.url)
        client, server = warm(relay, upstream)
        client.send(post())
        assert server.socket.recv(1, socket.MSG_PEEK)
        server.close()
        again = upstream.accept()
        again.head()
        again.send(OK)
        assert client.until(b"ok") == OK

        client.send(post())
        again.head()
        again.exactly(15)
        again.close()  # this time it was read
        assert client.head().startswith(b"HTTP/1.1 502 ")
        assert upstream.nobody_came(0.05)


def test_the_end_of_a_kept_unix_socket_is_crossed_too(start: Callable[..., RunningRelay], tmp_path: Path) -> None:
    with closing(ScriptedUpstream.on_unix(str(tmp_path / "upstream"))) as upstream:
        relay = start(upstream.url)
        client, server = warm(relay, upstream)
        closed_while_taken(relay, server)
        client.send(post())
        again = upstream.accept()
        again.head()
        again.send(OK)
        assert client.until(b"ok") == OK


def test_upstream_that_is_down_is_a_502_in_openai_form(start: Callable[..., RunningRelay]) -> None:
    relay = start("http://127.0.0.1:1")
    client = relay.connect()
    client.send(post())
    assert client.head().startswith(b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\n")
    assert client.rest() == (
        b'{"error":{"message":"The upstream server cannot be reached.","type":"upstream_error","param":null,'
        b'"code":"connect"}}'
    )
    end = relay.tap.end()
    assert (end.finish, end.status, end.reason) == (Finish.UPSTREAM_UNREACHABLE, 502, "connect")
    assert relay.relay.dialer.failures == 1


def test_upstream_that_does_not_accept_in_time(start: Callable[..., RunningRelay]) -> None:
    with never_accepting() as url:
        relay = start(url, connect_timeout=0.1)
        client = relay.connect()
        client.send(post())
        assert client.head().startswith(b"HTTP/1.1 502 ")
        assert relay.tap.end().reason == "timeout"


def test_a_name_that_is_not_known(start: Callable[..., RunningRelay]) -> None:
    relay = start("http://no-such-host.invalid:8000")
    client = relay.connect()
    client.send(post())
    assert client.head().startswith(b"HTTP/1.1 502 ")
    assert relay.tap.end().reason == "connect"


def test_a_name_with_an_address_that_refuses_and_one_that_accepts(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(f"http://localhost:{upstream.port}")  # ::1 first, where nobody listens
    for _ in range(2):
        client = relay.connect()
        client.send(post())
        server = upstream.accept()
        assert server.head().startswith(b"POST ")
        server.send(STREAM_HEAD + chunk(event(1)))
        client.until(chunk(event(1)))


def test_a_server_that_speaks_first_is_heard(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    spoken = threading.Event()
    lookup = relay.relay.dialer.lookup
    original = lookup.addresses

    def connect_and_wait(found: Any) -> None:
        def then_wait(addresses: Any) -> None:
            found(addresses)
            spoken.wait(5)

        original(then_wait)

    lookup.addresses = connect_and_wait  # type: ignore[method-assign]
    client = relay.connect()
    client.send(get())
    server = upstream.accept()
    server.send(b"HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
    spoken.set()
    assert client.until(b"\r\n\r\nno").startswith(b"HTTP/1.1 503 Busy\r\n")


def test_many_requests_at_once_need_as_many_connections(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    clients = [relay.connect() for _ in range(200)]
    for client in clients:
        client.send(post())
    servers = [upstream.accept() for _ in clients]
    for server in servers:
        server.head()
        server.send(OK)
    for client in clients:
        assert client.until(b"ok") == OK
    assert eventually(lambda: len(relay.relay.pool) == 200)
