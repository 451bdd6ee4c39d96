"""Heads for the next hop. Whole exchanges are in test_exchange."""

from __future__ import annotations

import pytest

from prefillwatch.relay.forwarding import forwarded_trailers, request_head, response_head
from prefillwatch.relay.http_head import parse_request, parse_response, parse_trailer

UPSTREAM = b"vllm:8000"


def test_a_plain_request_is_the_same_byte_for_byte() -> None:
    head = b"POST /v1/x?y HTTP/1.1\r\nhost:a\r\nB:  1\r\nb: 2 \r\nContent-length: 5\r\n\r\n"
    assert request_head(parse_request(head), UPSTREAM, keep_host=True) == head


def test_the_host_is_replaced_where_it_stands() -> None:
    head = b"GET / HTTP/1.1\r\nA: 1\r\nHost: a\r\nB: 2\r\n\r\n"
    expected = b"GET / HTTP/1.1\r\nA: 1\r\nHost: vllm:8000\r\nB: 2\r\n\r\n"
    assert request_head(parse_request(head), UPSTREAM, keep_host=False) == expected


def test_a_connection_header_cannot_take_away_what_frames_the_message() -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: Host, Content-Length, X\r\nX: 1\r\nContent-Length: 5\r\n\r\n"
    assert request_head(parse_request(head), UPSTREAM, keep_host=True) == (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"
    )


def test_a_changed_body_gets_its_own_length_and_no_compressed_answer() -> None:
    head = b"POST / HTTP/1.1\r\nContent-Length: 5\r\nHost: a\r\nAccept-Encoding: br\r\n\r\n"
    assert request_head(parse_request(head), UPSTREAM, keep_host=True, length=77) == (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 77\r\n\r\n"
    )


def test_a_response_says_how_it_is_framed_here() -> None:
    response = parse_response(b"HTTP/1.0 200 Fine\r\nContent-Length: 3\r\nConnection: x\r\nX: 1\r\nY: 2\r\n\r\n")
    assert response_head(response, chunked=False, length=True, connection=b"keep-alive") == (
        b"HTTP/1.1 200 Fine\r\nContent-Length: 3\r\nY: 2\r\nConnection: keep-alive\r\n\r\n"
    )
    assert response_head(response, chunked=True, length=False, connection=b"") == (
        b"HTTP/1.1 200 Fine\r\nY: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    )


def test_a_request_without_host_gets_the_one_of_its_target() -> None:
    request = parse_request(b"GET http://a:1/b HTTP/1.0\r\n\r\n")
    assert request_head(request, UPSTREAM, keep_host=True) == b"GET /b HTTP/1.1\r\nHost: a:1\r\n\r\n"
    assert request_head(request, UPSTREAM, keep_host=False) == b"GET /b HTTP/1.1\r\nHost: vllm:8000\r\n\r\n"


@pytest.mark.parametrize("framing", [b"Content-Length: 5", b"Content-Length: 0", b"Transfer-Encoding: chunked"])
def test_an_answer_without_content_says_nothing_of_its_length(framing: bytes) -> None:
    response = parse_response(b"HTTP/1.1 204 No Content\r\n%b\r\nX: 1\r\n\r\n" % framing)
    expected = b"HTTP/1.1 204 No Content\r\nX: 1\r\n\r\n"
    assert response_head(response, chunked=response.chunked, length=True, connection=b"") == expected


@pytest.mark.parametrize(("said", "passed"), [(b"007", b"7"), (b"000", b"0"), (b"0", b"0"), (b"70", b"70")])
def test_a_length_in_an_answer_has_one_reading(said: bytes, passed: bytes) -> None:
    response = parse_response(b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\n" % said)
    expected = b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\n" % passed
    assert response_head(response, chunked=False, length=True, connection=b"") == expected


@pytest.mark.parametrize("length", [b"0", b"7"])
def test_a_plain_length_stays_as_it_was_spelled(length: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %b\r\n\r\n" % length
    assert response_head(parse_response(head), chunked=False, length=True, connection=b"") == head


def test_trailers_end_a_chunked_request() -> None:
    lines = (b"X-Sum:  1", b"Connection: close")
    trailers = [trailer for line in lines if (trailer := parse_trailer(line)) is not None]
    assert len(trailers) == 2
    assert forwarded_trailers(trailers) == b"0\r\nX-Sum:  1\r\n\r\n"
    assert forwarded_trailers([]) == b"0\r\n\r\n"
