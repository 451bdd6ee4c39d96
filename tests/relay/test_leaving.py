"""Somebody leaves early: the other side learns it within a second, and nothing stays behind."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Callable

import pytest
from tests.kit.eventually import eventually
from tests.relay.peers import (
    LAST_CHUNK,
    STREAM_HEAD,
    Peer,
    ScriptedUpstream,
    chunk,
    event,
    get,
    never_accepting,
    post,
)
from tests.relay.running import RelayProcess, RunningRelay

from prefillwatch.wire.tap import Finish, Kind

JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
STAGES = {
    "before the head": b"",
    "in the head": b"HTTP/1.1 200 OK\r\nContent-",
    "before the first token": STREAM_HEAD,
    "mid-stream": STREAM_HEAD + chunk(event(1)),
    "in a chunk": STREAM_HEAD + chunk(event(1))[:20],
    "in a JSON answer": JSON_HEAD + b'{"choices":[',
    "in an answer without length": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + event(1),
}


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("stage", STAGES)
def test_upstream_learns_at_once_that_the_client_has_left(
    relay: RunningRelay, upstream: ScriptedUpstream, stage: str, how: str
) -> None:
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    server.send(STAGES[stage])
    if b"\r\n\r\n" in STAGES[stage]:
        client.head()
    getattr(client, how)()
    server.socket.settimeout(1.0)
    assert server.end() == "reset"
    end = relay.tap.end()
    assert end.finish is Finish.CLIENT_CLOSED
    assert end.status == (200 if b"\r\n\r\n" in STAGES[stage] else 0)
    assert relay.becomes_idle()
    assert len(relay.relay.pool) == 0
    assert eventually(lambda: not relay.relay.clients and not relay.relay.dialer.open)


def test_a_client_that_leaves_while_it_sends_ahead_is_noticed(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    client.send(b"GET /next HTTP/1.1\r\nX: " + b"x" * 100_000)  # more than is read ahead
    client.close()
    server.socket.settimeout(1.0)
    assert server.end() == "reset"
    assert relay.tap.end().finish is Finish.CLIENT_CLOSED


def test_a_client_that_leaves_while_sending_its_request(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(post(body=b"x" * 1000)[:-10])
    assert eventually(lambda: relay.in_flight == 1)
    client.close()
    assert relay.tap.end().finish is Finish.CLIENT_CLOSED
    assert upstream.nobody_came(0.01)
    client = relay.connect()
    client.send(b"GET / HTT")
    client.close()
    assert eventually(lambda: not relay.relay.clients)


def test_a_client_that_leaves_right_behind_its_request(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    body = b"x" * 200_000
    for request in (get(), post(body=body), post(body=body)[:-1], post(body=body) + get()):
        client = relay.connect()
        client.send(request)
        client.close()
    for number in range(1, 5):
        assert relay.tap.end(number).finish is Finish.CLIENT_CLOSED
    assert relay.becomes_idle()
    assert eventually(lambda: not relay.relay.clients)


def test_a_client_that_leaves_before_upstream_accepts(start: Callable[..., RunningRelay]) -> None:
    with never_accepting() as url:
        relay = start(url, connect_timeout=30)
        client = relay.connect()
        client.send(post())
        relay.tap.wait(Kind.REQUEST_END)
        client.close()
        assert relay.tap.end().finish is Finish.CLIENT_CLOSED
        assert relay.becomes_idle()
        assert len(relay.relay.dialer.limits) == 0


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("stage", ["before the first token", "mid-stream", "in a chunk", "in a JSON answer"])
def test_a_truncated_answer_does_not_look_complete(
    relay: RunningRelay, upstream: ScriptedUpstream, stage: str, how: str
) -> None:
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    server.send(STAGES[stage])
    seen = client.exactly(len(STAGES[stage]))
    getattr(server, how)()
    with contextlib.suppress(ConnectionResetError):
        seen += client.rest()
    assert seen == STAGES[stage]  # all that came, and no end
    end = relay.tap.end()
    assert (end.finish, end.status) == (Finish.UPSTREAM_TRUNCATED, 200)
    assert end.reason == {"close": "closed", "reset": "reset"}[how]
    client.close()
    assert eventually(lambda: not relay.relay.clients)


def test_a_reset_of_an_answer_without_length_is_passed_on_as_a_reset(
    relay: RunningRelay, upstream: ScriptedUpstream
) -> None:
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.send(STAGES["in an answer without length"])
    client.until(event(1))
    server.reset()
    assert client.end() == "reset"
    assert relay.tap.end().finish is Finish.UPSTREAM_TRUNCATED


def test_a_truncated_stream_is_a_reset_for_a_client_that_would_take_a_close_for_the_end(
    relay: RunningRelay, upstream: ScriptedUpstream
) -> None:
    client = relay.connect()
    client.send(b"POST /v1/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
    server = upstream.accept()
    server.head()
    server.send(STREAM_HEAD + chunk(event(1)))
    client.until(event(1))
    server.close()
    assert client.end() == "reset"


def test_nothing_stays_in_flight_after_a_thousand_mixed_ends(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    chance = random.Random(7)
    for number in range(1000):
        _one_end(relay, upstream, chance.choice(ENDS))
        if number % 100 == 0:
            relay.tap.read()
    assert relay.becomes_idle()
    assert eventually(lambda: not relay.relay.clients)
    assert relay.relay.dialer.open == len(relay.relay.pool)
    assert len(relay.relay.receiving) == len(relay.relay.repeatable) == len(relay.relay.dialer.limits) == 0
    finishes = {relay.tap.end(stream).finish for stream in range(1, 1001)}
    assert finishes >= {Finish.COMPLETE, Finish.CLIENT_CLOSED, Finish.UPSTREAM_TRUNCATED, Finish.UPSTREAM_UNREACHABLE}


ENDS = ("complete", "before the head", "first byte", "mid-stream", "at the end", "upstream error", "upstream closes")


def _one_end(relay: RunningRelay, upstream: ScriptedUpstream, end: str) -> None:
    client = relay.connect()
    client.send(post(headers=b"Connection: close\r\n"))
    server = _next_request(relay, upstream)
    if end == "before the head":
        client.reset()
    elif end == "upstream closes":
        server.send(STREAM_HEAD + chunk(event(1)))
        server.close()
        client.rest()
    elif end == "upstream error":
        server.close()
        assert client.head().startswith(b"HTTP/1.1 502 ") or server.socket.fileno() < 0
    else:
        _answered(client, server, end)
    client.close()


def _answered(client: Peer, server: Peer, end: str) -> None:
    server.send(STREAM_HEAD)
    client.head()
    if end != "first byte":
        server.send(chunk(event(1)))
        client.until(chunk(event(1)))
    if end in ("at the end", "complete"):
        server.send(LAST_CHUNK)
        client.until(LAST_CHUNK)
    if end == "complete":
        assert client.rest() == b""


def _next_request(relay: RunningRelay, upstream: ScriptedUpstream) -> Peer:
    """The connection on which the request arrives: a kept one, or a new one."""
    relay.relay.pool._keepalive_s = 0  # always a new one; keeping is tested elsewhere
    server = upstream.accept()
    server.head()
    server.exactly(15)
    return server


def test_memory_stays_flat_over_five_thousand_early_cancels(start_process: Callable[..., object]) -> None:

    relay = start_process()
    assert isinstance(relay, RelayProcess)
    relay.tap.stats()

    def cancel(times: int) -> None:
        for number in range(times):
            client = relay.connect()
            client.send(post(body=b'{"messages":"' + b"x" * 2_000 + b'"}'))
            client.reset()
            relay.tap.read()
            if number % 20 == 0:  # wait for the relay: a crowd at its door would be another matter
                client = relay.connect()
                client.send(b"CONNECT nobody:1 HTTP/1.1\r\nHost: nobody\r\n\r\n")
                client.end()
                client.close()
                relay.forget_peers()

    cancel(1000)
    settled = _settled(relay.resident_bytes)
    cancel(5000)
    assert _settled(relay.resident_bytes) - settled < 2**20
    relay.tap.records.clear()
    assert eventually(lambda: relay.tap.stats().exchanges == 0)


def _settled(value: Callable[[], int]) -> int:
    time.sleep(0.3)
    return value()


def test_an_answer_may_take_its_time(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(get())
    server = upstream.accept()
    server.head()
    assert client.is_silent(1.3)  # longer than anything of ours that ticks
    server.send(STREAM_HEAD)
    assert client.head() == STREAM_HEAD


@pytest.mark.parametrize("begun", [False, True])
def test_a_limit_for_silence_can_be_set(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream, begun: bool
) -> None:
    relay = start(idle_limit=0.5)
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    if begun:
        server.send(STREAM_HEAD + chunk(event(1)))
        assert client.rest() == STREAM_HEAD + chunk(event(1))
    else:
        assert client.head().startswith(b"HTTP/1.1 504 ")
    end = relay.tap.end()
    assert end.finish is (Finish.UPSTREAM_TRUNCATED if begun else Finish.UPSTREAM_UNREACHABLE)
    assert end.reason == "idle_limit"
    assert server.end() == "reset"


def test_neither_a_stream_nor_a_client_that_takes_nothing_is_silent(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(idle_limit=0.3)
    client, blocked = relay.connect(), relay.connect(receive_buffer=4096)
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    server.send(STREAM_HEAD)
    blocked.send(post())
    flooding = upstream.accept()
    flooding.head()
    flooding.exactly(15)
    flooding.send(STREAM_HEAD)
    flooding.send_until_blocked(chunk(b"x" * 60_000))
    for number in range(14):  # beyond two of the relay's looks at it
        server.send(chunk(event(number)))
        assert server.is_silent(0.15)
    assert relay.in_flight == 2
    server.send(LAST_CHUNK)
    assert client.until(LAST_CHUNK).endswith(chunk(event(13)) + LAST_CHUNK)


def test_a_fault_of_ours_ends_one_exchange_and_says_where_not_what(
    relay: RunningRelay, upstream: ScriptedUpstream, capsys: pytest.CaptureFixture[str]
) -> None:
    clients = [relay.connect() for _ in range(2)]
    servers = []
    for client in clients:
        client.send(post())
        servers.append(upstream.accept())
        servers[-1].head()
        servers[-1].send(STREAM_HEAD + chunk(event(1)))
        client.until(chunk(event(1)))
    handler = relay.relay.exchanges[1]._on_upstream

    def fail() -> None:
        try:
            raise ZeroDivisionError("SECRET")
        except ZeroDivisionError as error:
            relay.relay._on_crash(handler, error)

    relay.call(fail)
    assert clients[0].rest() == b""
    end = relay.tap.end(1)
    assert (end.finish, end.reason) == (Finish.CUT, "internal")
    servers[1].send(chunk(event(2)) + LAST_CHUNK)
    assert clients[1].until(LAST_CHUNK) == chunk(event(2)) + LAST_CHUNK
    said = capsys.readouterr().err
    assert said.startswith("prefillwatch relay: ZeroDivisionError in fail (")
    assert "SECRET" not in said


def send_last(client: Peer, request: bytes) -> None:
    """Send a request and say that nothing more comes."""
    client.send(request)
    client.socket.shutdown(socket.SHUT_WR)


def without_asking(seen: bytes) -> bytes:
    """What the client got, without the interim answer that it was sent to find out whether it is there."""
    return seen.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")


@pytest.mark.parametrize(
    "request_bytes",
    [post(), post(headers=b"Connection: close\r\n"), get(), b"GET /health HTTP/1.0\r\n\r\n", post("/v1/files")],
    ids=["chat", "the last one", "get", "HTTP/1.0", "upload"],
)
def test_a_client_that_only_says_that_it_sends_no_more_gets_its_answer(
    relay: RunningRelay, upstream: ScriptedUpstream, request_bytes: bytes
) -> None:
    client = relay.connect()
    send_last(client, request_bytes)
    server = upstream.accept()
    server.head()
    assert server.is_silent(0.2)  # nobody hangs up
    server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert without_asking(client.rest()).endswith(b"\r\n\r\nok")  # and the connection ends
    assert relay.tap.end().finish is Finish.COMPLETE
    assert eventually(lambda: not relay.relay.clients)


def test_a_stream_for_a_client_that_sends_no_more(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    send_last(client, post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    server.send(STREAM_HEAD)
    assert without_asking(client.until(STREAM_HEAD)) == STREAM_HEAD
    for number in range(3):
        server.send(chunk(event(number)))
        assert client.exactly(len(chunk(event(number)))) == chunk(event(number))
    client.close()
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        for _ in range(2):  # that it has left shows at the next token
            server.send(chunk(event(4)))
            server.is_silent(0.1)
    assert relay.tap.end().finish is Finish.CLIENT_CLOSED


def test_requests_that_were_sent_ahead_are_answered_to_a_client_that_sends_no_more(
    relay: RunningRelay, upstream: ScriptedUpstream
) -> None:
    client = relay.connect()
    send_last(client, get("/1") + post(body=b"x" * 100_000) + get("/3") + get("/4")[:-1])
    server = upstream.accept()
    for _ in range(3):
        if b"POST" in server.head():
            server.exactly(100_000)
        server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert without_asking(client.rest()) == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" * 3
    assert [relay.tap.end(stream).finish for stream in (1, 2, 3)] == [Finish.COMPLETE] * 3
    assert eventually(lambda: not relay.relay.clients)


def test_whether_a_client_of_http_1_0_waits_cannot_be_known_so_its_generation_is_stopped(
    relay: RunningRelay,
) -> None:
    client = relay.connect()
    send_last(client, b"POST /v1/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
    assert relay.tap.end().finish is Finish.CLIENT_CLOSED


def test_a_client_that_says_so_amid_its_answer_has_left(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    server.send(STREAM_HEAD + chunk(event(1)))
    client.until(chunk(event(1)))
    client.socket.shutdown(socket.SHUT_WR)
    assert server.end() == "reset"
    assert relay.tap.end().finish is Finish.CLIENT_CLOSED
