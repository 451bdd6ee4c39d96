"""Usage asked for in the client's place: added to the request, taken out of the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import pytest
from tests.kit.eventually import eventually
from tests.relay.peers import LAST_CHUNK, STREAM_HEAD, Peer, ScriptedUpstream, chunk, event, get, post
from tests.relay.running import RunningRelay

from prefillwatch.wire.tap import Finish, Kind

USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
DONE = b"data: [DONE]\n\n"
BODY = b'{"stream":true}'
ORIGINAL = post(body=BODY)
CHUNKED = b"POST /v1/completions HTTP/1.1\r\nHost: relay\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def relay(start: Callable[..., RunningRelay]) -> RunningRelay:
    return start(usage="inject")


class Asked(NamedTuple):
    """A request that upstream has read to its end."""

    client: Peer
    server: Peer
    head: bytes
    body: bytes

    @property
    def wants_usage(self) -> bool:
        return b"stream_options" in self.body


Ask = Callable[..., Asked]


@pytest.fixture
def ask(relay: RunningRelay, upstream: ScriptedUpstream) -> Ask:
    """Sends a request and reads it at upstream: on new connections, or on those of one that went before."""

    def ask(request: bytes = ORIGINAL, *, client: Peer | None = None, server: Peer | None = None) -> Asked:
        if client is None:
            client = relay.connect()
        client.send(request)
        return read(client, server or upstream.accept())

    return ask


def read(client: Peer, server: Peer) -> Asked:
    head = server.head()
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    return Asked(client, server, head, server.exactly(length))


def refuse(server: Peer, status: int = 400) -> None:
    server.send(b"HTTP/1.1 %d No\r\nContent-Length: 2\r\n\r\nno" % status)


def test_usage_is_asked_for_and_stripped(relay: RunningRelay, ask: Ask) -> None:
    client, server, head, body = ask(post(headers=b"Accept-Encoding: gzip\r\n"))
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


def test_usage_is_asked_for_in_a_request_that_came_in_chunks(ask: Ask) -> None:
    client, server, head, body = ask(CHUNKED + chunk(BODY[:5]) + chunk(BODY[5:]) + LAST_CHUNK)
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


def test_a_usage_event_that_is_cut_does_not_slip_through(ask: Ask) -> None:
    for split in range(1, len(USAGE)):
        client, server, *_ = ask()
        server.send(STREAM_HEAD + chunk(event(1) + USAGE[:split]))
        client.until(event(1))
        server.send(chunk(USAGE[split:] + DONE) + LAST_CHUNK)
        assert client.until(LAST_CHUNK) == b"\r\n" + chunk(DONE) + LAST_CHUNK
        server.close()
        client.close()


@pytest.mark.parametrize("status", [400, 422])
def test_the_original_is_sent_when_upstream_refuses_the_addition(
    relay: RunningRelay, upstream: ScriptedUpstream, ask: Ask, status: int
) -> None:
    client, refusing, *_ = ask()
    refuse(refusing, status)
    _, server, _, body = read(client, upstream.accept())
    assert body == BODY
    server.send(STREAM_HEAD + chunk(event(1) + USAGE) + LAST_CHUNK)
    assert client.until(LAST_CHUNK) == STREAM_HEAD + chunk(event(1) + USAGE) + LAST_CHUNK  # untouched
    assert relay.tap.end().finish is Finish.COMPLETE
    assert relay.tap.response().injected is False


#: How a server may refuse a body of 4 MB: before it has read it, and then it reads on, or not, or resets at once.
EARLY: dict[str, Callable[[Peer], object]] = {
    "and reads on": lambda server: None,
    "and closes": lambda server: server.close(),
    "with a body in chunks": lambda server: server.send(chunk(b"no") + LAST_CHUNK),
}


@pytest.mark.parametrize("kept", [False, True], ids=["new connection", "kept connection"])
@pytest.mark.parametrize("way", EARLY)
def test_an_early_refusal_is_mended_too(relay: RunningRelay, upstream: ScriptedUpstream, way: str, kept: bool) -> None:
    client = relay.connect()
    if kept:
        client.send(get())
        refusing = upstream.accept()
        refusing.head()
        refusing.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        client.until(b"ok")
    body = b'{"stream":true,"prompt":"' + b"x" * 3_900_000 + b'"}'
    client.send(post(body=body))
    if not kept:
        refusing = upstream.accept()
    refusing.head()
    if "chunks" in way:
        refusing.send(b"HTTP/1.1 400 No\r\nTransfer-Encoding: chunked\r\n\r\n")
    else:
        refuse(refusing)
    EARLY[way](refusing)
    _, server, _, again = read(client, upstream.accept())
    assert again == body
    server.send(STREAM_HEAD + LAST_CHUNK)
    assert client.until(LAST_CHUNK) == STREAM_HEAD + LAST_CHUNK


def test_asking_rests_where_upstream_takes_requests_only_without(
    relay: RunningRelay,
    upstream: ScriptedUpstream,
    ask: Ask,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("prefillwatch.relay.relay.INJECTION_RESTS_S", 2.5)
    assert "asks for usage" not in capsys.readouterr().err
    asked = [ask() for _ in range(3)]  # at once: each of them is asked with usage before the first one is refused
    assert all(each.wants_usage for each in asked)
    for each in asked:
        refuse(each.server)
    for each in asked:
        again = read(each.client, upstream.accept())
        assert not again.wants_usage
        again.server.send(STREAM_HEAD.replace(b"Transfer", b"Connection: close\r\nTransfer") + LAST_CHUNK)
    assert eventually(lambda: relay.relay.usage_refused == 3)
    assert capsys.readouterr().err.count("upstream refuses requests that ask for usage") == 1

    client, server, _, body = ask()
    assert body == BODY  # it rests
    server.send(STREAM_HEAD + chunk(event(1) + USAGE) + LAST_CHUNK)
    client.until(LAST_CHUNK)
    assert eventually(lambda: relay.tap.stats().usage_rests)
    assert relay.tap.stats().usage_refused == 3

    assert eventually(lambda: relay.relay.policy.inject_usage)  # it may be another server by now
    assert ask(client=client, server=server).wants_usage
    refuse(server)
    again = read(client, upstream.accept())
    assert not again.wants_usage
    again.server.send(STREAM_HEAD + LAST_CHUNK)
    assert eventually(lambda: relay.relay.usage_refused == 4)
    assert "upstream refuses" not in capsys.readouterr().err  # said once


def test_a_request_that_is_refused_either_way_gets_its_own_refusal_and_nothing_rests(
    relay: RunningRelay, upstream: ScriptedUpstream, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    first = ask()
    assert first.wants_usage
    first.server.send(b"HTTP/1.1 400 No\r\nContent-Length: 14\r\n\r\nstream_options")
    again = read(first.client, upstream.accept())
    assert not again.wants_usage
    client, server, *_ = again
    server.send(b"HTTP/1.1 400 No\r\nContent-Length: 8\r\n\r\ntoo long")
    assert client.until(b"too long") == b"HTTP/1.1 400 No\r\nContent-Length: 8\r\n\r\ntoo long"
    assert ask(client=client, server=server).wants_usage  # on the same connection: the refusal was a whole answer
    assert relay.relay.usage_refused == 0
    assert "refuses" not in capsys.readouterr().err


@pytest.mark.parametrize("status", [401, 404, 413, 429, 500, 503])
def test_other_errors_are_no_refusals_of_the_addition(
    relay: RunningRelay, upstream: ScriptedUpstream, ask: Ask, status: int
) -> None:
    client, server, *_ = ask()
    refuse(server, status)
    assert client.until(b"\r\n\r\nno").startswith(b"HTTP/1.1 %d No\r\n" % status)
    assert upstream.nobody_came(0.02)
    assert relay.relay.policy.inject_usage


@pytest.mark.parametrize(
    "body", [b"{}", b'{"stream":true,"stream_options":{"include_usage":false}}', b"not json", b'{"stream":false}']
)
def test_requests_that_want_nothing_are_left_alone(ask: Ask, body: bytes) -> None:
    client, server, head, sent = ask(post(body=body, headers=b"Accept-Encoding: gzip\r\n"))
    assert sent == body
    assert b"Accept-Encoding: gzip" in head
    server.send(STREAM_HEAD + chunk(event(1) + USAGE) + LAST_CHUNK)
    assert client.until(LAST_CHUNK) == STREAM_HEAD + chunk(event(1) + USAGE) + LAST_CHUNK


def test_a_client_of_http_1_0_gets_the_stripped_stream_plain(ask: Ask) -> None:
    client, server, *_ = ask(b"POST /v1/completions HTTP/1.0\r\nContent-Length: 15\r\n\r\n" + BODY)
    server.send(STREAM_HEAD + chunk(event(1)) + chunk(USAGE + DONE) + LAST_CHUNK)
    assert client.rest().endswith(b"\r\n\r\n" + event(1) + DONE)


def test_a_stream_that_ends_with_its_connection_is_stripped_too(relay: RunningRelay, ask: Ask) -> None:
    client, server, *_ = ask()
    server.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + event(1))
    client.until(chunk(event(1)))
    server.send(USAGE + DONE)
    server.close()
    assert client.until(LAST_CHUNK) == chunk(DONE) + LAST_CHUNK
    assert relay.tap.end().finish is Finish.COMPLETE


def test_a_stream_that_says_it_is_not_compressed_is_stripped_too(ask: Ask) -> None:
    client, server, *_ = ask()
    head = STREAM_HEAD.replace(b"Transfer", b"Content-Encoding: Identity\r\nTransfer")
    server.send(head + chunk(event(1)))
    client.until(chunk(event(1)))
    server.send(chunk(USAGE + DONE) + LAST_CHUNK)
    assert client.until(LAST_CHUNK) == chunk(DONE) + LAST_CHUNK


def test_a_truncated_stream_has_no_last_chunk(relay: RunningRelay, ask: Ask) -> None:
    client, server, *_ = ask()
    server.send(STREAM_HEAD + chunk(event(1)))
    client.until(chunk(event(1)))
    server.close()
    assert client.rest() == b""
    assert relay.tap.end().finish is Finish.UPSTREAM_TRUNCATED


def test_errors_and_compressed_answers_pass_untouched(ask: Ask) -> None:
    for head in (
        b"HTTP/1.1 503 No\r\nContent-Type: text/event-stream\r\nContent-Length: 4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: br\r\nContent-Length: 4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n",
    ):
        client, server, *_ = ask()
        server.send(head + b"abcd")
        assert client.exactly(len(head) + 4) == head + b"abcd"
        server.close()
