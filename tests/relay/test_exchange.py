"""What passes through, and what the observer is told of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.kit.eventually import eventually
from tests.relay.peers import LAST_CHUNK, STREAM_HEAD, ScriptedUpstream, chunk, event, get, post
from tests.relay.running import RunningRelay

from prefillwatch.wire.tap import End, Finish, Kind


def test_a_stream_passes_untouched_and_is_told_to_the_tap(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(post(headers=b"X-Request-Id: r-1\r\nx-slo-ttft-ms: 250\r\nx-slo-tpot-ms: nonsense\r\n"))
    server = upstream.accept()
    assert server.head().startswith(b"POST /v1/chat/completions HTTP/1.1\r\nHost: relay\r\n")
    assert server.exactly(15) == b'{"stream":true}'
    server.send(STREAM_HEAD)
    assert client.head() == STREAM_HEAD
    for number in range(3):
        server.send(chunk(event(number)))
        assert client.exactly(len(chunk(event(number)))) == chunk(event(number))
    server.send(LAST_CHUNK)
    assert client.exactly(5) == LAST_CHUNK

    assert relay.tap.end() == End(Finish.COMPLETE, 200)
    assert relay.tap.story() == ["REQUEST", "REQUEST_BODY", "REQUEST_END", "SENT", "RESPONSE", "DATA", "END"]
    request, response = relay.tap.request(), relay.tap.response()
    assert (request.method, request.path, request.content_length) == ("POST", "/v1/chat/completions", 15)
    assert (request.request_id, request.slo_ttft_ms, request.slo_tpot_ms) == ("r-1", 250.0, 0.0)
    assert (response.status, response.content_type, response.observed) == (200, "text/event-stream", True)
    assert [payload for *_, payload in relay.tap.wait(Kind.DATA)] == [event(0), event(1), event(2)]
    assert relay.tap.payload(Kind.REQUEST_BODY) == b'{"stream":true}'
    assert relay.tap.wait(Kind.REQUEST_END)[0][3] == (15).to_bytes(8, "little")
    times = [time for time, stream, *_ in relay.tap.records if stream == 1]
    assert times == sorted(times)


def test_tokens_go_first_and_bulk_waits(
    relay: RunningRelay, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream is at the front of the loop; while it comes in whole blocks it is no generated text, and at the back."""
    at_back = relay.relay.reactor._at_back
    client = relay.connect()
    assert eventually(lambda: len(relay.relay.clients) == 1)
    others = len(at_back)  # the listener, and the client
    client.send(post())
    server = upstream.accept()
    server.head()
    assert eventually(lambda: len(at_back) == others + 1)  # what has not begun to stream can wait
    server.send(STREAM_HEAD + chunk(event(0)))
    client.exactly(len(STREAM_HEAD + chunk(event(0))))
    assert eventually(lambda: len(at_back) == others)
    to_back, moved = relay.relay.reactor.to_back, []
    monkeypatch.setattr(relay.relay.reactor, "to_back", lambda fd: (moved.append(fd), to_back(fd)))
    block = chunk(b": " + b"x" * 200_000 + b"\n\n")
    for _ in range(4):
        server.send(block)
        client.exactly(len(block))
    assert moved
    server.send(chunk(event(1)))
    assert client.exactly(len(chunk(event(1)))) == chunk(event(1))
    assert eventually(lambda: len(at_back) == others)
    server.send(LAST_CHUNK)
    assert client.exactly(5) == LAST_CHUNK


def test_several_events_in_one_read_are_one_record(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.send(STREAM_HEAD)
    client.head()
    burst = b"".join(chunk(event(number)) for number in range(4))
    server.send(burst)
    assert client.exactly(len(burst)) == burst
    server.send(LAST_CHUNK)
    assert relay.tap.end().finish is Finish.COMPLETE
    assert [payload for *_, payload in relay.tap.wait(Kind.DATA)] == [b"".join(map(event, range(4)))]


def test_any_split_of_a_stream_gives_the_same_bytes(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    stream = STREAM_HEAD + chunk(event(1)) + chunk("data: 好\n\n".encode()) + LAST_CHUNK
    client = relay.connect()
    for split in range(1, len(stream)):
        client.send(post())
        server = upstream.peers[0] if upstream.peers else upstream.accept()
        server.head()
        server.send(stream[:split])
        passed = client.exactly(split if split >= len(STREAM_HEAD) else 0)
        server.send(stream[split:])
        assert passed + client.exactly(len(stream) - len(passed)) == stream
    for stream_id in range(1, len(stream)):
        assert relay.tap.end(stream_id).finish is Finish.COMPLETE
        assert relay.tap.payload(stream=stream_id) == event(1) + "data: 好\n\n".encode()


def test_one_byte_at_a_time(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    request = post()
    client = relay.connect()
    for offset in range(len(request)):
        client.send(request[offset : offset + 1])
    server = upstream.accept()
    server.head()
    assert server.exactly(15) == b'{"stream":true}'
    answer = STREAM_HEAD + chunk(event(1)) + LAST_CHUNK
    for offset in range(len(answer)):
        server.send(answer[offset : offset + 1])
    assert client.until(LAST_CHUNK) == answer
    assert relay.tap.end().finish is Finish.COMPLETE
    assert relay.tap.payload() == event(1)


ANSWERS = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"hello"),
    "empty": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    "no content": (b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n", b""),
    "not modified": (b'HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\nETag: "x"\r\n\r\n', b""),
    "no phrase": (b"HTTP/1.1 299 \r\nContent-Length: 1\r\n\r\n", b"x"),
    "binary": (b"HTTP/1.1 200 OK\r\nContent-Type: audio/pcm\r\nContent-Length: 256\r\n\r\n", bytes(range(256))),
    "binary called events": (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 256\r\n\r\n",
        bytes(range(256)),
    ),
    "cookies": (
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nX-Request-ID: 7\r\nContent-Length: 2\r\n\r\n",
        b"ok",
    ),
    "chunked": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk(b"abc") + LAST_CHUNK),
    "extensions": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b'003;name="value"\r\nabc\r\n' + LAST_CHUNK,
    ),
    "trailers": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        chunk(b"abc") + b"0\r\nX-Checksum: 1\r\nX-Other: 2\r\n\r\n",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_of_every_kind_pass_untouched_and_keep_the_connection(
    relay: RunningRelay, upstream: ScriptedUpstream, name: str
) -> None:
    head, body = ANSWERS[name]
    client = relay.connect()
    for _ in range(2):
        client.send(post("/v1/whatever"))
        server = upstream.accept()  # this method and path may not be repeated, so its connection is always a new one
        server.head()
        server.send(head + body)
        assert client.exactly(len(head + body)) == head + body
    assert client.is_silent()
    assert relay.tap.end(2).finish is Finish.COMPLETE


def test_head_has_no_body_whatever_its_length_says(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(b"HEAD /v1/models HTTP/1.1\r\nHost: relay\r\n\r\n")
    server = upstream.accept()
    server.head()
    server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")
    assert client.head() == b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"
    client.send(get())
    assert server.head().startswith(b"GET /health ")  # the same connection again


def test_an_answer_that_ends_with_its_connection(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(get())
    server = upstream.accept()
    server.head()
    server.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhello ")
    server.send(b"world")
    server.close()
    assert client.rest() == b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nhello world"
    assert relay.tap.end().finish is Finish.COMPLETE


def test_unknown_methods_and_paths_pass(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(b"BREW /pot/%7Bx%7D?strength=2&[f] HTTP/1.1\r\nHost: relay\r\nContent-Length: 3\r\n\r\nabc")
    server = upstream.accept()
    assert server.head().startswith(b"BREW /pot/%7Bx%7D?strength=2&[f] HTTP/1.1\r\n")
    assert server.exactly(3) == b"abc"
    server.send(b"HTTP/1.1 418 I'm a teapot\r\nContent-Length: 0\r\n\r\n")
    assert client.head().startswith(b"HTTP/1.1 418 I'm a teapot\r\n")
    request = relay.tap.request()
    assert (request.method, request.path) == ("BREW", "/pot/%7Bx%7D")


def test_hop_by_hop_headers_go_and_all_others_stay(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(
        b"GET /v1/models HTTP/1.1\r\nhOST: relay:8080\r\nConnection: keep-alive, X-Foo\r\nX-Foo: 1\r\nTE: trailers\r\n"
        b"Keep-Alive: timeout=5\r\nProxy-Authorization: Basic eA==\r\nProxy-Connection: close\r\nUpgrade: h2c\r\n"
        b"Trailer: X-T\r\nAuthorization: Bearer secret\r\nX-Dup: 1\r\nx-dup:   2  \r\nCookie: a=b\r\n"
        b"X-Request-Id: id\r\n\r\n"
    )
    server = upstream.accept()
    assert server.head() == (
        b"GET /v1/models HTTP/1.1\r\nhOST: relay:8080\r\nAuthorization: Bearer secret\r\nX-Dup: 1\r\nx-dup:   2  \r\n"
        b"Cookie: a=b\r\nX-Request-Id: id\r\n\r\n"
    )
    server.send(
        b"HTTP/1.1 200 OK\r\nConnection: X-Bar\r\nX-Bar: 1\r\nX-Kept: 2\r\nKeep-Alive: timeout=9\r\n"
        b"Proxy-Authenticate: Basic\r\nContent-Length: 77\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunk(b"a")
        + LAST_CHUNK
    )
    assert client.until(LAST_CHUNK) == (
        b"HTTP/1.1 200 OK\r\nX-Kept: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"a") + LAST_CHUNK
    )


def test_an_answer_that_is_not_http_becomes_a_502(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(get())
    server = upstream.accept()
    server.head()
    server.send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    assert client.head().startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    end = relay.tap.end()
    assert (end.finish, end.status, end.reason) == (Finish.UPSTREAM_UNREACHABLE, 502, "malformed")
    assert server.end() == "reset"


def test_json_answers_are_shown_to_the_observer(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(post("/v1/completions"))
    server = upstream.accept()
    server.head()
    body = b'{"usage":{"prompt_tokens":3}}' * 3000
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: br\r\nContent-Length: %d\r\n\r\n"
    server.send(head % len(body) + body)
    assert client.exactly(len(head % len(body)) + len(body)).endswith(body)
    assert relay.tap.end().finish is Finish.COMPLETE
    assert relay.tap.payload() == body
    assert relay.tap.response().content_encoding == "br"


def test_secrets_in_the_query_do_not_reach_the_tap(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(
        post("/v1/chat/completions?key=MARKER", headers=b"Authorization: Bearer MARKER\r\nX-Api-Key: MARKER\r\n")
    )
    server = upstream.accept()
    assert server.head().count(b"MARKER") == 3
    server.send(b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: MARKER\r\nContent-Length: 0\r\n\r\n")
    client.head()
    assert relay.tap.end().status == 401
    assert all(b"MARKER" not in payload for *_, payload in relay.tap.read())


def test_a_client_of_http_1_0_gets_no_chunks(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(b"POST /v1/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
    server = upstream.accept()
    assert (
        server.head()
        == b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 2\r\n\r\n" % upstream.port
    )
    server.send(STREAM_HEAD + chunk(event(1)))
    assert client.until(event(1)) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + event(1)
    )
    server.send(chunk(event(2)) + LAST_CHUNK)
    assert client.rest() == event(2)
    assert relay.tap.end().finish is Finish.COMPLETE
    assert relay.tap.payload() == event(1) + event(2)


def test_a_client_of_http_1_0_may_keep_its_connection(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    for _ in range(2):
        client.send(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        server = upstream.peers[0] if upstream.peers else upstream.accept()
        server.head()
        server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        assert (
            client.until(b"\r\n\r\nok") == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok"
        )


def test_a_chunked_request_goes_on_in_chunks_with_its_trailers(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\nTrailer: X-T\r\n\r\n")
    client.send(b"3;ext=1\r\nabc\r\n")
    assert upstream.nobody_came()
    client.send(b"00004\r\ndefg\r\n0\r\nX-T: 1\r\nConnection: x\r\n\r\n")
    server = upstream.accept()
    assert server.head() == b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert server.until(b"0\r\nX-T: 1\r\n\r\n") == b"7\r\nabcdefg\r\n0\r\nX-T: 1\r\n\r\n"
    server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    client.head()
    assert relay.tap.end().finish is Finish.COMPLETE
    assert relay.tap.payload(Kind.REQUEST_BODY) == b"abcdefg"
    assert relay.tap.request().content_length == -1


def test_a_large_body_passes_whole_and_is_shown_in_part(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    body = bytes(range(256)) * (10 * 4096)  # 10 MiB
    client = relay.connect()
    client.send(post(body=body))
    server = upstream.accept()
    server.head()
    assert server.exactly(len(body)) == body
    server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    client.head()
    assert relay.tap.end().finish is Finish.COMPLETE
    assert relay.tap.request().body_limit == 8 * 2**20
    assert relay.tap.payload(Kind.REQUEST_BODY) == body[: 8 * 2**20]
    assert relay.tap.wait(Kind.REQUEST_END)[0][3] == len(body).to_bytes(8, "little")


def test_an_early_answer_passes_while_the_body_is_not_taken(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    client.send(post(body=b"x" * (32 * 2**20)))
    server = upstream.accept()
    server.head()
    server.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno")
    assert client.until(b"no").startswith(b"HTTP/1.1 413 ")
    assert server.end() == "reset"
    client.send(get())
    assert upstream.accept().head().startswith(b"GET ")  # never on the connection with half a body in it
    assert "SENT" not in relay.tap.story()


def test_a_request_goes_on_while_its_answer_streams_already(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    body = bytes(range(256)) * (64 * 1024)  # 16 MiB
    client = relay.connect()
    client.send(post(body=body))
    server = upstream.accept()
    server.head()
    server.send(STREAM_HEAD)
    client.head()
    token, taken, tokens = chunk(event(1)), 0, 0
    while taken < len(body) and tokens < 100:
        with relay.standing_still():  # so that it learns of room for more and of a token at once
            taken += server.waiting()
            server.send(token)
        assert client.exactly(len(token)) == token
        tokens += 1
    assert taken == len(body)
    server.send(LAST_CHUNK)
    assert relay.tap.end().finish is Finish.COMPLETE
    assert relay.tap.story() == ["REQUEST", "REQUEST_BODY", "REQUEST_END", "RESPONSE", "DATA", "END"]
    assert relay.tap.payload() == event(1) * tokens


def test_streams_pass_without_a_tap(start: Callable[..., RunningRelay], upstream: ScriptedUpstream) -> None:
    relay = start(tapped=False)
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.send(STREAM_HEAD + chunk(event(1)))
    server.send(chunk(event(2)) + LAST_CHUNK)
    assert client.until(LAST_CHUNK).endswith(chunk(event(2)) + LAST_CHUNK)
    assert relay.tap.read() == []
