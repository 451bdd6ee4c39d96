"""What clients together may cost a relay, and who has to wait or to leave when that is too much."""

from __future__ import annotations

import contextlib
import errno
import json
import select
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.kit.eventually import PATIENCE_S, eventually
from tests.relay.peers import (
    LAST_CHUNK,
    STREAM_HEAD,
    Peer,
    ScriptedUpstream,
    chunk,
    event,
    get,
    post,
)
from tests.relay.running import RelayProcess, RunningRelay

from prefillwatch.relay import bodies, dialer
from prefillwatch.relay.unsent import Unsent
from prefillwatch.wire.tap import Finish

MIB = 2**20
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CLOSING_OK = OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")
#: Room for two bodies of the largest size, and for 10 MiB of small ones.
LARGEST = 15 * MIB
TWO_BODIES = {"max_body": LARGEST, "max_bodies": 40 * MIB}


def upload(size: int, path: str = "/anything") -> bytes:
    """The head of one."""
    return b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (path.encode(), size)


def answer(upstream: ScriptedUpstream, size: int) -> None:
    """Take a body and answer it."""
    server = upstream.accept()
    server.head()
    assert server.exactly(size) == b"x" * size
    server.send(OK)


def refusal(client: Peer) -> tuple[bytes, dict[str, Any]]:
    """The head and the error of an answer of ours."""
    head = client.head()
    return head, json.loads(client.rest())["error"]


# Bodies
# ---------------------------------------------------------------------------------------------------------------------


def test_large_uploads_wait_for_each_other_and_all_arrive(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(**TWO_BODIES)
    held = relay.relay.bodies
    clients = [relay.connect() for _ in range(5)]
    for number, client in enumerate(clients, 1):
        client.send(upload(LARGEST) + b"x" * (MIB + 1))
        assert eventually(lambda: held.large // LARGEST + held.waiting == number)  # noqa: B023 - while it is so
    assert held.waiting == 3
    for client in clients:
        client.send(b"x" * (LARGEST - MIB - 1))
        answer(upstream, LARGEST)
        assert client.until(b"ok") == OK
    assert eventually(lambda: held.held == 0)


def test_an_upload_of_unknown_length_has_room_for_the_largest_until_its_end_is_known(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(**TWO_BODIES)
    held = relay.relay.bodies
    client = relay.connect()
    client.send(b"POST /anything HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    client.send(chunk(b"x" * MIB))
    assert eventually(lambda: held.small == MIB)
    client.send(chunk(b"x" * MIB))
    assert eventually(lambda: (held.small, held.large) == (0, LARGEST))
    client.send(LAST_CHUNK)
    server = upstream.accept()
    server.head()
    assert eventually(lambda: held.large <= 2 * MIB)
    assert server.until(LAST_CHUNK).count(b"x") == 2 * MIB
    server.send(OK)
    assert client.until(b"ok") == OK
    assert eventually(lambda: held.held == 0)


def test_a_prompt_passes_while_large_uploads_wait(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(**TWO_BODIES)
    waiting = [relay.connect() for _ in range(5)]
    for client in waiting:
        client.send(upload(LARGEST) + b"x" * (MIB + 1))
    assert eventually(lambda: relay.relay.bodies.waiting == 3)
    client = relay.connect()
    client.send(upload(100_000) + b"x" * 100_000)
    answer(upstream, 100_000)
    assert client.until(b"ok") == OK


def test_what_unfinished_uploads_cost_is_bounded_and_given_back(
    start_process: Callable[..., RelayProcess], upstream: ScriptedUpstream
) -> None:
    relay = start_process(max_body=64 * MIB, max_bodies=96 * MIB)
    relay.connect().send(get())
    upstream.accept()
    before = relay.resident_bytes()
    clients = [relay.connect() for _ in range(8)]
    for client in clients:
        client.send(upload(64 * MIB))
        client.socket.settimeout(0.5)
        with contextlib.suppress(TimeoutError):  # most of them are not read
            client.send(b"x" * (40 * MIB))
    # A busy machine takes longer to read what it may hold; that it holds no more is seen when it has come so far.
    eventually(lambda: relay.resident_bytes() - before > 30 * MIB)
    assert relay.resident_bytes() - before < 110 * MIB
    for client in clients:
        client.close()
    assert eventually(lambda: relay.resident_bytes() - before < 12 * MIB)


def test_who_stands_still_while_others_wait_is_told_so(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "_GRACE_NS", 0)
    relay = start(request_timeout=2.0, **TWO_BODIES)
    still = [relay.connect() for _ in range(2)]
    for client in still:
        client.send(upload(LARGEST) + b"x" * (MIB + 1))
    assert eventually(lambda: relay.relay.bodies.large == 2 * LARGEST)
    client = relay.connect()
    client.send(upload(2 * MIB) + b"x" * (2 * MIB))
    answer(upstream, 2 * MIB)
    assert client.until(b"ok") == OK
    for each in still:
        head, error = refusal(each)
        assert head.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert error["code"] == "upload_too_slow"
    ends = {relay.tap.end(stream).reason for stream in (1, 2)}
    assert ends == {"upload_too_slow"}


def test_who_waited_in_vain_may_try_again(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "_PATIENCE_NS", 0)
    relay = start(**TWO_BODIES)
    held = [relay.connect() for _ in range(2)]
    for client in held:
        client.send(upload(LARGEST) + b"x" * LARGEST)  # upstream does not take them
    assert eventually(lambda: relay.relay.bodies.large == 2 * LARGEST)
    client = relay.connect()
    client.send(upload(LARGEST) + b"x" * (MIB + 1))
    head, error = refusal(client)
    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"\r\nRetry-After: 1\r\n" in head
    assert (error["code"], error["type"]) == ("bodies_full", "server_error")
    end = relay.tap.end(3)
    assert (end.finish, end.status, end.reason) == (Finish.REJECTED, 503, "bodies_full")


def test_heads_that_do_not_end_are_bodies_as_far_as_memory_goes(start: Callable[..., RunningRelay]) -> None:
    relay = start(max_body=1024, max_bodies=1024)  # the least there is: 4 MiB
    first = relay.connect()
    first.send(b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"x" * 60_000)
    assert eventually(lambda: relay.relay.bodies.small > 60_000)
    for _ in range(70):
        relay.connect().send(b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"x" * 60_000)
    head, error = refusal(first)
    assert head.startswith(b"HTTP/1.1 503 ")
    assert error["code"] == "bodies_full"
    assert eventually(lambda: 3 * MIB < relay.relay.bodies.small <= 4 * MIB)


def test_requests_that_come_early_are_read_ahead_only_as_far_as_all_together_may(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(max_body=1024, max_bodies=1024)
    early = get("/" + "y" * 60_000)
    clients = [relay.connect() for _ in range(30)]
    servers = []
    for client in clients:
        client.send(get("/first"))
        servers.append(upstream.accept())
        servers[-1].head()
        client.send(early)
    assert eventually(lambda: relay.relay.bodies.early > 1_000_000)
    assert relay.relay.bodies.early <= MIB + 65536
    for client, server in zip(clients, servers, strict=True):
        server.send(OK)
        assert client.until(b"ok") == OK
    left = dict.fromkeys(server.socket for server in servers)
    for _ in clients:  # on which of the kept connections they come is not known
        ready = select.select(list(left), [], [], PATIENCE_S)[0][0]
        server = next(server for server in servers if server.socket is ready)
        assert server.head() == early
        server.send(OK)
    for client in clients:
        assert client.until(b"ok") == OK
    assert relay.relay.bodies.early == 0


# Clients that take nothing
# ---------------------------------------------------------------------------------------------------------------------


def stream_to_nobody(relay: RunningRelay, upstream: ScriptedUpstream) -> tuple[Peer, Peer]:
    """A client that does not read, and its server after as much as anybody takes."""
    client = relay.connect(receive_buffer=4096)
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    server.send(STREAM_HEAD)
    server.send_until_blocked(chunk(event(1) * 50))
    return client, server


def test_a_client_that_takes_nothing_is_left_and_upstream_stops(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(client_write_timeout=0.5)
    client, server = stream_to_nobody(relay, upstream)
    assert server.end() == "reset"
    end = relay.tap.end()
    assert (end.finish, end.status, end.reason) == (Finish.CLIENT_CLOSED, 200, "write_timeout")
    assert client.end() == "reset"
    assert relay.relay.unsent.size == 0
    assert not relay.relay.clients


def test_a_client_that_takes_a_little_now_and_then_is_not(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client, _ = stream_to_nobody(relay, upstream)
    (connection,) = relay.relay.clients

    def time_is_over() -> None:
        done = threading.Event()
        relay.call(lambda: (connection.takes_nothing(), done.set())[0])
        assert done.wait(PATIENCE_S)

    for _ in range(3):
        client.exactly(8 * 1024)  # its socket has room again only after much more
        assert client.is_silent(0.1) is False
        time_is_over()
        assert relay.in_flight == 1
    assert eventually(lambda: relay.tap.story()[-1] == "BLOCKED")
    time_is_over()
    time_is_over()
    assert relay.in_flight == 0


def test_of_all_that_is_held_for_clients_who_took_nothing_for_longest_has_to_go() -> None:
    left: list[str] = []

    class Soon:
        def call_at(self, due_ns: int, callback: object) -> None: ...

    unsent = Unsent[str](Soon(), 60.0, left.append, left.append, most=100)  # type: ignore[arg-type]
    for name in "abcd":
        unsent.holds(name, 25)
    unsent.holds("a", 20)  # it has taken some
    unsent.grows("c", 30)
    assert (unsent.size, left) == (100, [])
    unsent.holds("e", 20)
    assert (unsent.size, left) == (95, ["b"])
    unsent.forget("c")
    unsent.forget("c")
    assert unsent.size == 65
    unsent.holds("f", 200)
    assert (unsent.size, left) == (200, ["b", "d", "a", "e"])


# Descriptors
# ---------------------------------------------------------------------------------------------------------------------


def test_a_new_client_is_served_while_idle_ones_have_taken_all_places(
    start_process: Callable[..., RelayProcess], upstream: ScriptedUpstream
) -> None:
    relay = start_process(descriptors=256)
    idle = [relay.connect() for _ in range(500)]
    client = relay.connect()
    client.send(get("/1"))
    server = upstream.accept()
    server.head()
    server.send(OK)
    assert client.until(b"ok") == OK
    assert eventually(lambda: relay.tap.stats().places_given >= 400)
    stats = relay.tap.stats()
    assert (stats.client_connections, stats.most_clients) == (100, 100)
    assert idle[0].end() == "closed"  # and not reset


def test_every_client_that_was_accepted_gets_its_connection_to_upstream(
    start_process: Callable[..., RelayProcess], upstream: ScriptedUpstream
) -> None:
    relay = start_process(descriptors=128)
    clients = []
    for _ in range(80):
        clients.append(relay.connect())
        clients[-1].send(post())  # at once, since who is idle makes place for others
    servers = [upstream.accept() for _ in range(44)]
    assert upstream.nobody_came(0.3)  # the others wait to be accepted
    for server in servers:
        server.head()
        server.send(CLOSING_OK)
    for _ in range(36):
        server = upstream.accept()
        server.head()
        server.send(CLOSING_OK)  # a connection that is kept may carry the next one, and nobody comes here for it
    assert all(client.until(b"ok").startswith(b"HTTP/1.1 200 OK") for client in clients)


def test_clients_beyond_the_number_that_was_set_wait(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(max_clients=4, relays=2)
    for number in range(3):
        relay.connect().send(get(f"/{number}"))
    servers = [upstream.accept(), upstream.accept()]
    assert upstream.nobody_came(0.2)
    assert len(relay.relay.clients) == 2
    servers[0].head()
    servers[0].send(OK)
    servers[0].head()  # the first one has become idle, and made place for the third
    assert relay.relay.places_given == 1


def test_who_does_not_manage_to_send_a_request_gives_its_place_to_others(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(max_clients=3)
    slow = [relay.connect() for _ in range(3)]
    for client in slow:
        client.send(b"GET / HTTP/1.1\r\nHo")
    client = relay.connect()
    client.send(get())
    server = upstream.accept()
    server.head()
    server.send(OK)
    assert client.until(b"ok") == OK
    head, error = refusal(slow[0])
    assert head.startswith(b"HTTP/1.1 503 ")
    assert error["code"] == "clients_full"


def test_uploads_have_more_time_than_heads_before_they_give_their_place(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(max_clients=2)
    uploading = relay.connect()
    uploading.send(upload(10) + b"x")  # and it began before the other one
    assert eventually(lambda: relay.in_flight == 1)
    relay.connect().send(b"GET / HTTP/1.1\r\nHo")
    client = relay.connect()
    client.send(get())
    server = upstream.accept()
    server.head()
    server.send(OK)
    assert client.until(b"ok") == OK
    uploading.send(b"x" * 9)
    answer(upstream, 10)
    assert uploading.until(b"ok") == OK


def test_want_of_a_descriptor_is_not_upstreams_fault(relay: RunningRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    class Sockets:
        """The module, on a day without descriptors."""

        def __getattr__(self, name: str) -> Any:
            return getattr(socket, name)

        def socket(self, *_: object) -> Any:
            raise OSError(errno.EMFILE, "Too many open files")

    client = relay.connect()
    monkeypatch.setattr(dialer, "socket", Sockets())
    client.send(post())
    head, error = refusal(client)
    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"\r\nRetry-After: 1\r\n" in head
    assert error["code"] == "no_descriptors"
    assert (relay.tap.end().finish, relay.tap.end().status) == (Finish.REJECTED, 503)
    assert relay.relay.dialer.failures == 0


def test_an_idle_connection_to_upstream_makes_place_for_one_that_is_needed(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(max_clients=1)
    client = relay.connect()
    client.send(get())
    kept = upstream.accept()
    kept.head()
    kept.send(OK)
    client.until(b"ok")
    assert eventually(lambda: len(relay.relay.pool) == 1)
    client.send(post("/v1/files"))  # never on a kept one
    upstream.accept().head()
    assert kept.end() == "closed"


# Where a request comes from
# ---------------------------------------------------------------------------------------------------------------------


def test_upstream_sees_the_clients_address_and_not_what_it_claims(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(forwarded="replace", name="prefillwatch-1a2b")
    relay.connect().send(get("/x", b"X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\n"))
    assert upstream.accept().head() == (
        b"GET /x HTTP/1.1\r\nHost: relay\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\n"
        b"Via: 1.1 prefillwatch-1a2b\r\n\r\n"
    )


def test_a_request_that_comes_back_ends_there(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream, capfd: pytest.CaptureFixture[str]
) -> None:
    inner = start(name="prefillwatch-1a2b")
    outer = start(f"http://127.0.0.1:{inner.port}", name="prefillwatch-1a2b")
    for _ in range(2):
        client = outer.connect()
        client.send(get())
        head, body = client.head(), client.until(b"}}")
        assert head.startswith(b"HTTP/1.1 508 Loop Detected\r\n")
        assert json.loads(body)["error"]["code"] == "loop"
    assert upstream.nobody_came(0.1)
    assert capfd.readouterr().err.count("a request came back to us") == 1
    assert inner.tap.end().reason == "loop"


def test_another_sidecar_on_the_way_is_no_loop(start: Callable[..., RunningRelay], upstream: ScriptedUpstream) -> None:
    inner = start(name="prefillwatch-1a2b")
    outer = start(f"http://127.0.0.1:{inner.port}", name="prefillwatch-3c4d")
    client = outer.connect()
    client.send(get())
    server = upstream.accept()
    assert server.head().endswith(b"Via: 1.1 prefillwatch-3c4d\r\nVia: 1.1 prefillwatch-1a2b\r\n\r\n")
    server.send(OK)
    assert client.until(b"ok") == OK
