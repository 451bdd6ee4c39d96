"""Usage asked for in the client's place: added to the request, taken out of the answer."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.relay.peers import LAST_CHUNK, STREAM_HEAD, Peer, ScriptedUpstream, chunk, event, post
from tests.relay.running import RunningRelay

from prefillwatch.wire.tap import Finish, Kind

USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.fixture
def relay(start: Callable[..., RunningRelay]) -> RunningRelay:
    return start(inject_usage=True)


def request_of(server: Peer) -> tuple[bytes, bytes]:
    head = server.head()
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    return head, server.exactly(length)


def test_usage_is_asked_for_and_stripped(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(post(headers=b"Accept-Encoding: gzip\r\n"))
    server = upstream.accept()
    head, body = request_of(server)
    assert b"Accept-Encoding" not in head
    assert msgspec.json.decode(body)["stream_options"]["include_usage"] is True
    server.send(STREAM_HEAD + chunk(event(1)))
    assert client.until(chunk(event(1))) == STREAM_HEAD + chunk(event(1))
    server.send(chunk(event(2)) + chunk(USAGE) + chunk(DONE) + LAST_CHUNK)
    assert client.until(LAST_CHUNK) == chunk(event(2) + DONE) + LAST_CHUNK
    assert relay.tap.end().finish is Finish.COMPLETE
    assert relay.tap.payload() == event(1) + event(2) + USAGE + DONE
    assert relay.tap.response().injected is True
    assert relay.tap.payload(Kind.REQUEST_BODY) == b'{"stream":true}'


CHUNKED = b"POST /v1/completions HTTP/1.1\r\nHost: relay\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = b'{"stream":true}'


def test_usage_is_asked_for_in_a_request_that_came_in_chunks(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(CHUNKED + chunk(BODY[:5]) + chunk(BODY[5:]) + LAST_CHUNK)
    server = upstream.accept()
    head, body = request_of(server)
    assert b"Transfer-Encoding" not in head
    assert msgspec.json.decode(body)["stream_options"]["include_usage"] is True
    server.send(STREAM_HEAD + chunk(event(1)))
    assert client.until(chunk(event(1))) == STREAM_HEAD + chunk(event(1))
    server.send(chunk(USAGE + DONE) + LAST_CHUNK)
    assert client.until(LAST_CHUNK) == chunk(DONE) + LAST_CHUNK


def test_a_request_with_trailers_is_left_alone(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    sent = CHUNKED + chunk(BODY) + b"0\r\nX-Checksum: 1\r\n\r\n"
    client = relay.connect()
    client.send(sent)
    assert upstream.accept().exactly(len(sent)) == sent


def test_a_usage_event_that_is_cut_does_not_slip_through(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    for split in range(1, len(USAGE)):
        client = relay.connect()
        client.send(post())
        server = upstream.accept()
        request_of(server)
        server.send(STREAM_HEAD + chunk(event(1) + USAGE[:split]))
        client.until(event(1))
        server.send(chunk(USAGE[split:] + DONE) + LAST_CHUNK)
        assert client.until(LAST_CHUNK) == b"\r\n" + chunk(DONE) + LAST_CHUNK
        server.close()
        client.close()


@pytest.mark.parametrize("status", [400, 422])
def test_the_original_is_sent_when_upstream_refuses_the_addition(
    relay: RunningRelay, upstream: ScriptedUpstream, status: int
) -> None:
    client = relay.connect()
    client.send(post())
    refusing = upstream.accept()
    request_of(refusing)
    refusing.send(b"HTTP/1.1 %d No\r\nContent-Length: 2\r\n\r\nno" % status)
    server = upstream.accept()
    assert request_of(server)[1] == b'{"stream":true}'
    server.send(STREAM_HEAD + chunk(event(1) + USAGE) + LAST_CHUNK)
    assert client.until(LAST_CHUNK) == STREAM_HEAD + chunk(event(1) + USAGE) + LAST_CHUNK  # untouched
    assert relay.tap.end().finish is Finish.COMPLETE
    assert relay.tap.response().injected is False


def test_a_second_refusal_passes(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(post())
    for _ in range(2):
        server = upstream.accept()
        request_of(server)
        server.send(b"HTTP/1.1 400 No\r\nContent-Length: 2\r\n\r\nno")
    assert client.until(b"\r\n\r\nno").startswith(b"HTTP/1.1 400 No\r\n")


@pytest.mark.parametrize(
    "body", [b"{}", b'{"stream":true,"stream_options":{"include_usage":false}}', b"not json", b'{"stream":false}']
)
def test_requests_that_want_nothing_are_left_alone(
    relay: RunningRelay, upstream: ScriptedUpstream, body: bytes
) -> None:
    client = relay.connect()
    client.send(post(body=body, headers=b"Accept-Encoding: gzip\r\n"))
    server = upstream.accept()
    head, sent = request_of(server)
    assert sent == body
    assert b"Accept-Encoding: gzip" in head
    server.send(STREAM_HEAD + chunk(event(1) + USAGE) + LAST_CHUNK)
    assert client.until(LAST_CHUNK) == STREAM_HEAD + chunk(event(1) + USAGE) + LAST_CHUNK


def test_a_client_of_http_1_0_gets_the_stripped_stream_plain(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(b'POST /v1/completions HTTP/1.0\r\nContent-Length: 15\r\n\r\n{"stream":true}')
    server = upstream.accept()
    request_of(server)
    server.send(STREAM_HEAD + chunk(event(1)) + chunk(USAGE + DONE) + LAST_CHUNK)
    assert client.rest().endswith(b"\r\n\r\n" + event(1) + DONE)


def test_a_stream_that_ends_with_its_connection_is_stripped_too(
    relay: RunningRelay, upstream: ScriptedUpstream
) -> None:
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    request_of(server)
    server.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + event(1))
    client.until(chunk(event(1)))
    server.send(USAGE + DONE)
    server.close()
    assert client.until(LAST_CHUNK) == chunk(DONE) + LAST_CHUNK
    assert relay.tap.end().finish is Finish.COMPLETE


def test_a_stream_that_says_it_is_not_compressed_is_stripped_too(
    relay: RunningRelay, upstream: ScriptedUpstream
) -> None:
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    request_of(server)
    head = STREAM_HEAD.replace(b"Transfer", b"Content-Encoding: Identity\r\nTransfer")
    server.send(head + chunk(event(1)))
    client.until(chunk(event(1)))
    server.send(chunk(USAGE + DONE) + LAST_CHUNK)
    assert client.until(LAST_CHUNK) == chunk(DONE) + LAST_CHUNK


def test_a_truncated_stream_has_no_last_chunk(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    request_of(server)
    server.send(STREAM_HEAD + chunk(event(1)))
    client.until(chunk(event(1)))
    server.close()
    assert client.rest() == b""
    assert relay.tap.end().finish is Finish.UPSTREAM_TRUNCATED


def test_errors_and_compressed_answers_pass_untouched(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    for head in (
        b"HTTP/1.1 503 No\r\nContent-Type: text/event-stream\r\nContent-Length: 4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: br\r\nContent-Length: 4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n",
    ):
        client = relay.connect()
        client.send(post())
        server = upstream.accept()
        request_of(server)
        server.send(head + b"abcd")
        assert client.exactly(len(head) + 4) == head + b"abcd"
        server.close()
