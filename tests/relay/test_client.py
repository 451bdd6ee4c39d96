"""Receiving requests: what is refused before upstream hears of it, pipelining, waiting, deadlines."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from email.utils import formatdate, parsedate_to_datetime

import pytest
from tests.kit.eventually import eventually
from tests.relay.peers import Peer, ScriptedUpstream, get, post
from tests.relay.running import RelayProcess, RunningRelay

from prefillwatch.relay.error_answers import http_date
from prefillwatch.wire.routes import endpoint_of
from prefillwatch.wire.tap import Finish

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def refusal(client: Peer) -> tuple[int, dict[str, str]]:
    """Status and error of an answer of ours; the connection must end after it."""
    head = client.head()
    assert b"Connection: close" in head
    body = client.rest()
    assert b"Content-Length: %d\r\n" % len(body) in head
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return int(head[9:12]), error


H = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
SMUGGLING = {
    "length and chunked": (400, H + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX"),
    "chunked and length": (400, H + b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nX"),
    "two lengths": (400, H + b"Content-Length: 6\r\nContent-Length: 5\r\n\r\nabcdef"),
    "the same length twice": (400, H + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde"),
    "list of lengths": (400, H + b"Content-Length: 5, 5\r\n\r\nabcde"),
    "signed length": (400, H + b"Content-Length: +5\r\n\r\nabcde"),
    "negative length": (400, H + b"Content-Length: -5\r\n\r\nabcde"),
    "hexadecimal length": (400, H + b"Content-Length: 0x5\r\n\r\nabcde"),
    "empty length": (400, H + b"Content-Length:\r\n\r\nabcde"),
    "length with a gap": (400, H + b"Content-Length: 1 0\r\n\r\nabcdefghij"),
    "length in other digits": (400, H + "Content-Length: ٥\r\n\r\nabcde".encode()),
    "absurd length": (400, H + b"Content-Length: 99999999999999999999\r\n\r\n"),
    "space before the colon": (400, H + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    "space before the name": (400, H + b" Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "identity": (400, H + b"Transfer-Encoding: identity\r\n\r\n"),
    "chunked then identity": (400, H + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    "gzip then chunked": (400, H + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "chunked twice": (400, H + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "chunked in quotes": (400, H + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n'),
    "vertical tab before chunked": (400, H + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
    "chunked in HTTP/1.0": (400, b"POST /x HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "folded line": (400, H + b"X: a\r\n b\r\n\r\n"),
    "bare line feed": (400, H + b"X: a\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "only line feeds": (400, b"GET / HTTP/1.1\nHost: a\n\n"),
    "bare carriage return": (400, H + b"X: a\rTransfer-Encoding: chunked\r\n\r\n"),
    "NUL in a value": (400, H + b"X: a\x00b\r\n\r\n"),
    "NUL in a name": (400, H + b"X\x00: a\r\n\r\n"),
    "no name": (400, H + b": a\r\n\r\n"),
    "no colon": (400, H + b"X\r\n\r\n"),
    "odd name": (400, H + b"X(y): a\r\n\r\n"),
    "no host": (400, b"GET / HTTP/1.1\r\nX: a\r\n\r\n"),
    "two hosts": (400, H + b"Host: b\r\n\r\n"),
    "host with a user": (400, b"GET / HTTP/1.1\r\nHost: user@h\r\n\r\n"),
    "list of hosts": (400, b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"),
    "empty host": (400, b"GET / HTTP/1.1\r\nHost:\r\n\r\n"),
    "two authorities": (400, b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a fragment, which one server cuts off": (400, b"POST /v1/completions#x HTTP/1.1\r\nHost: a\r\n\r\n"),
    "bytes that are no ASCII in the target": (400, b"GET /caf\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n"),
    "asterisk without OPTIONS": (400, b"GET * HTTP/1.1\r\nHost: a\r\n\r\n"),
    "control byte hidden in the path": (400, b"GET /a%0d%0aX:y HTTP/1.1\r\nHost: a\r\n\r\n"),
    "backslash in the target": (400, b"GET /a\\b HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a tab before the length": (400, H + b"Content-Length:\t5\r\n\r\nabcde"),
    "a blank behind the length": (400, H + b"Content-Length: 5 \r\n\r\nabcde"),
    "length with an underscore": (400, H + b"Content_Length: 5\r\n\r\nabcde"),
    "octal length": (400, H + b"Content-Length: 010\r\n\r\nabcdefgh"),
    "two expectations": (417, H + b"Expect: 100-continue\r\nExpect: x\r\nContent-Length: 1\r\n\r\n"),
    "nameless extension": (400, H + b"Transfer-Encoding: chunked\r\n\r\n5;\r\nabcde\r\n0\r\n\r\n"),
    "one-byte chunks": (413, H + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 16_000),
    "two spaces": (400, b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a tab": (400, b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    "space in the target": (400, b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"),
    "control byte in the target": (400, b"GET /a\x7fb HTTP/1.1\r\nHost: a\r\n\r\n"),
    "HTTP/0.9": (400, b"GET /\r\n\r\n"),
    "lower-case version": (400, b"GET / http/1.1\r\nHost: a\r\n\r\n"),
    "HTTP/1.2": (505, b"GET / HTTP/1.2\r\nHost: a\r\n\r\n"),
    "HTTP/2": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "TLS": (400, bytes.fromhex("16030100c5010000c10303") + b"\n" + b"\x00" * 60),
    "signed chunk": (400, H + b"Transfer-Encoding: chunked\r\n\r\n+5\r\nabcde\r\n0\r\n\r\n"),
    "hexadecimal prefix": (400, H + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nabcde\r\n0\r\n\r\n"),
    "junk after a chunk": (400, H + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcdeXX0\r\n\r\n"),
    "chunk longer than it says": (400, H + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcdefg\r\n0\r\n\r\n"),
    "space before the size": (400, H + b"Transfer-Encoding: chunked\r\n\r\n 5\r\nabcde\r\n0\r\n\r\n"),
    "no size": (400, H + b"Transfer-Encoding: chunked\r\n\r\n\r\nabcde\r\n0\r\n\r\n"),
    "size too large": (400, H + b"Transfer-Encoding: chunked\r\n\r\n1000000000000000f\r\n"),
    "bare line feed in the framing": (400, H + b"Transfer-Encoding: chunked\r\n\r\n5\nabcde\r\n0\r\n\r\n"),
    "line feed in an extension": (400, H + b"Transfer-Encoding: chunked\r\n\r\n5;a\nb\r\nabcde\r\n0\r\n\r\n"),
    "endless extension": (400, H + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"a" * 9000),
    "framing in a trailer": (400, H + b"Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n"),
    "malformed trailer": (400, H + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX : 5\r\n\r\n"),
    "endless trailers": (400, H + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: 1234567890\r\n" * 3000),
    "odd expectation": (417, H + b"Expect: the-unexpected\r\nContent-Length: 0\r\n\r\n"),
    "head too long": (431, H + b"X: " + b"a" * 70_000 + b"\r\n\r\n"),
    "endless head": (431, H + b"X: " + b"a" * 70_000),
    "endless request line": (431, b"GET /" + b"a" * 70_000),
    "too many headers": (431, H + b"A: b\r\n" * 300 + b"\r\n"),
    "CONNECT": (501, b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n"),
    "WebSocket only in Upgrade": (501, get("/v1/realtime", b"Upgrade: h2c, WebSocket\r\n")),
    "WebSocket in a second Upgrade": (501, get("/v1/realtime", b"Upgrade: h2c\r\nUpgrade: websocket\r\n")),
    "another protocol": (501, get("/", b"Connection: upgrade\r\nUpgrade: TLS/1.2\r\n")),
    "WebSocket": (501, get("/v1/realtime", b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n")),
}


@pytest.mark.parametrize("name", SMUGGLING)
def test_what_two_servers_could_read_in_two_ways_is_refused(
    relay: RunningRelay, upstream: ScriptedUpstream, name: str
) -> None:
    expected, request = SMUGGLING[name]
    client = relay.connect()
    client.send(request)
    status, error = refusal(client)
    assert status == expected
    assert (error["type"] == "invalid_request_error") == (status < 500)
    end = relay.tap.end()
    assert (end.finish, end.status, end.reason) == (Finish.REJECTED, expected, error["code"])
    assert upstream.nobody_came(0.01)
    assert relay.becomes_idle()


def test_a_second_request_in_the_body_of_a_refused_one_is_not_answered(
    relay: RunningRelay, upstream: ScriptedUpstream
) -> None:
    client = relay.connect()
    client.send(H + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + get("/admin"))
    assert refusal(client)[0] == 400
    assert upstream.nobody_came(0.05)


def test_refusals_repeat_nothing_of_the_request(relay: RunningRelay) -> None:
    client = relay.connect()
    client.send(b"GET /MARKER HTTP/1.1\r\nHost: a\r\nMARKER\r\nAuthorization: MARKER\r\n\r\n")
    assert b"MARKER" not in client.head() + client.rest()


def test_the_observer_is_told_a_short_path_to_that_endpoint(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    relay.connect().send(get("/%ff" + "/x%ff" * 12_000 + "/v1/models"))
    told = relay.tap.request().path
    assert endpoint_of(told) == "models"
    assert len(told) < 600
    assert upstream.accept().head().startswith(b"GET /%ff/x%ff")


@pytest.mark.parametrize("upgrade", [b"h2c", b"H2C"])
def test_an_offer_to_speak_http_2_is_ignored(relay: RunningRelay, upstream: ScriptedUpstream, upgrade: bytes) -> None:
    client = relay.connect()
    client.send(get(headers=b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %b\r\nHTTP2-Settings: A\r\n" % upgrade))
    assert upstream.accept().head() == get()


def test_a_body_that_is_announced_too_long_is_refused_at_once(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(max_body=1000)
    client = relay.connect()
    client.send(H + b"Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n")
    status, error = refusal(client)
    assert (status, error["code"]) == (413, "body_too_large")
    assert upstream.nobody_came(0.01)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_sends_on_gets_to_read_the_413(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream, chunked: bool
) -> None:
    relay = start(max_body=2**20)
    size = 20 * 2**20
    client = relay.connect()
    if chunked:
        client.send(H + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n" % size)
    else:
        client.send(H + b"Content-Length: %d\r\n\r\n" % size)
    client.send(b"x" * size)  # all of it, before reading
    assert refusal(client)[0] == 413
    assert relay.tap.end().reason == "body_too_large"
    assert upstream.nobody_came(0.01)


def test_a_body_at_the_limit_passes(start: Callable[..., RunningRelay], upstream: ScriptedUpstream) -> None:
    relay = start(max_body=1000)
    client = relay.connect()
    client.send(H + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000)
    server = upstream.accept()
    server.head()
    assert server.exactly(1000) == b"x" * 1000


def test_chunked_framing_counts_as_bytes_received(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(max_body=1000)
    client = relay.connect()
    client.send(H + b"Transfer-Encoding: chunked\r\n\r\n" + (b"1;" + b"e" * 4000 + b"\r\nx\r\n") * 300)
    assert refusal(client)[0] == 413


def test_the_body_is_asked_for_when_the_client_waits_for_that(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(H + b"Expect: 100-Continue\r\nContent-Length: 3\r\n\r\n")
    assert client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert upstream.nobody_came(0.01)
    client.send(b"abc")
    server = upstream.accept()
    assert server.head() == H + b"Content-Length: 3\r\n\r\n"
    assert server.exactly(3) == b"abc"


def test_nobody_is_asked_for_a_body_that_has_come(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(H + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc")
    server = upstream.accept()
    server.head()
    server.send(OK)
    assert client.head().startswith(b"HTTP/1.1 200 ")


def test_pipelined_requests_are_answered_one_after_the_other(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(b"\r\n" + get("/1") + post("/v1/completions", b"{}") + get("/3"))
    server = upstream.accept()
    for start_line in (b"GET /1 ", b"POST /v1/completions ", b"GET /3 "):
        head = server.head()
        assert head.startswith(start_line)
        if b"POST" in head:
            assert server.exactly(2) == b"{}"
        assert server.is_silent(0.02)
        server.send(OK)
        assert client.until(b"ok") == OK
    assert relay.tap.end(3).finish is Finish.COMPLETE


def test_what_a_client_sends_ahead_is_bounded(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(get("/first"))
    server = upstream.accept()
    server.head()
    request = post("/v1/completions", b"x" * 100_000)
    sent = client.send_until_blocked(request)
    (connection,) = relay.relay.clients
    assert len(connection._buffer) <= 128 * 1024
    assert sent < 64 * 2**20  # the kernel's buffers, not ours
    server.send(OK)
    assert client.until(b"ok") == OK
    assert server.head().startswith(b"POST /v1/completions ")
    assert server.exactly(100_000) == b"x" * 100_000


def test_a_request_that_does_not_arrive_in_time_gets_a_408(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(request_timeout=0.2)
    for beginning in (b"GET / HT", H + b"Content-Length: 5\r\n\r\nab", H + b"Transfer-Encoding: chunked\r\n\r\n3\r\n"):
        client = relay.connect()
        client.send(beginning)
        status, error = refusal(client)
        assert (status, error["code"]) == (408, "request_timeout")
    assert upstream.nobody_came(0.01)
    assert relay.tap.end(2).finish is Finish.REJECTED


def test_an_empty_line_is_no_request_that_is_late(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(request_timeout=0.15)
    client = relay.connect()
    client.send(get())
    server = upstream.accept()
    server.head()
    server.send(OK)
    client.until(b"ok")
    client.send(b"\r\n")  # some clients end a body so
    assert client.rest() == b""
    assert relay.tap.story(2) == []


def test_trickling_does_not_extend_the_time_for_a_request(start: Callable[..., RunningRelay]) -> None:
    relay = start(request_timeout=0.3)
    client = relay.connect()
    client.send(H + b"Content-Length: 100000\r\n\r\n")
    for _ in range(100):
        client.send(b"x")
        if not client.is_silent(0.02):
            break
    assert refusal(client)[0] == 408


def test_an_idle_connection_is_closed_without_a_word(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(client_idle_timeout=0.15, request_timeout=60)
    client = relay.connect()
    assert client.rest() == b""
    client = relay.connect()
    client.send(get())
    server = upstream.accept()
    server.head()
    assert client.is_silent(0.3)  # waiting for an answer is not idle
    server.send(OK)
    assert client.rest() == OK
    assert eventually(lambda: not relay.relay.clients)


def test_a_close_of_the_connection_is_said_and_done(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(get(headers=b"Connection: close\r\n"))
    server = upstream.accept()
    assert server.head() == get()
    server.send(OK)
    assert client.rest() == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    client.close()
    assert eventually(lambda: not relay.relay.clients)


def test_without_a_free_descriptor_clients_wait(
    start_process: Callable[..., RelayProcess], upstream: ScriptedUpstream
) -> None:
    relay = start_process(descriptors=40)
    relay.tap.stats()
    clients = [relay.connect() for _ in range(60)]
    assert clients[-1].is_silent(0.3)
    clients[-1].send(get())
    assert clients[-1].is_silent(0.3)
    for client in clients[:40]:
        client.close()
    server = upstream.accept()
    server.head()
    server.send(OK)
    assert clients[-1].until(b"ok") == OK


def test_a_refused_head_has_no_body(relay: RunningRelay) -> None:
    for request in (
        b"HEAD / HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"HEAD / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HEAD / HTTP/1.1\r\nX: " + b"x" * 70_000,
        b"HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999999\r\n\r\n",
    ):
        client = relay.connect()
        client.send(request)
        assert client.head().startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 ", b"HTTP/1.1 431 "))
        assert client.rest() == b""


def test_an_answer_of_ours_has_a_date(relay: RunningRelay) -> None:
    client = relay.connect()
    client.send(b"GET / HTTP/1.1\r\n\r\n")
    (date,) = (line[6:].decode() for line in client.head().split(b"\r\n") if line.startswith(b"Date: "))
    assert abs(parsedate_to_datetime(date).timestamp() - time.time()) < 10


@pytest.mark.parametrize("unix_s", [0.0, 951_782_400.5, 1_767_225_599.0])
def test_dates_are_those_of_the_standard_library(unix_s: float) -> None:
    assert http_date(unix_s) == formatdate(unix_s, usegmt=True)


@pytest.mark.parametrize("pieces", [(b"\r\n" + get(),), (b"\r\n", get()), (b"\r", b"\n" + get())])
def test_an_empty_line_before_a_request_is_forgiven(
    relay: RunningRelay, upstream: ScriptedUpstream, pieces: tuple[bytes, ...]
) -> None:
    client = relay.connect()
    for piece in pieces:
        client.send(piece)
        relay.call(lambda: None)
    assert upstream.accept().head() == get()


@pytest.mark.parametrize("pieces", [(b"\r\n\r\n" + get(),), (b"\r\n", b"\r\n", get()), (b"\r\n\r", b"\n" + get())])
def test_two_empty_lines_are_not(relay: RunningRelay, upstream: ScriptedUpstream, pieces: tuple[bytes, ...]) -> None:
    client = relay.connect()
    client.send(pieces[0])
    for piece in pieces[1:]:
        relay.call(lambda: None)
        client.send(piece)
    assert refusal(client)[0] == 400
    assert upstream.nobody_came(0.05)


def test_a_body_of_many_small_chunks_arrives_whole(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    pieces = [b"%015d " % number for number in range(5000)]
    framed = b"".join(b"10\r\n%b\r\n" % piece for piece in pieces) + b"0\r\n\r\n"
    client.send(H + b"Transfer-Encoding: chunked\r\n\r\n" + framed + get())
    server = upstream.accept()
    server.head()
    body = b""
    while (size := server.until(b"\r\n")) != b"0\r\n":
        body += server.exactly(int(size, 16))
        server.until(b"\r\n")
    assert body == b"".join(pieces)
    server.until(b"\r\n")
    server.send(OK)
    client.until(b"ok")
    assert server.head() == get()  # it did not get lost behind the portions
