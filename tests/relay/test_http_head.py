"""Reading heads strictly. What is refused over real sockets is in test_client."""

from __future__ import annotations

import contextlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.relay.http_head import (
    MAX_HEADERS,
    HeadError,
    end_of_head,
    has_body,
    parse_request,
    parse_response,
    parse_trailer,
)

HEAD = b"POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX-A:  b c \t\r\n\r\n"


def test_a_request_is_read_and_its_lines_are_kept_as_they_came() -> None:
    request = parse_request(HEAD)
    assert (request.method, request.target, request.minor) == (b"POST", b"/v1/chat/completions?x=1", 1)
    assert request.path == "/v1/chat/completions"
    assert request.content_length == 5
    assert request.keep_alive
    assert b"\r\n".join(line for line, *_ in request.headers) == HEAD[HEAD.index(b"Host") : -4]
    assert request.header(b"x-a") == b"b c"
    assert request.header(b"x-b") == b""


@given(st.lists(st.integers(0, len(HEAD))), st.binary(max_size=20))
def test_the_end_of_a_head_is_found_wherever_the_reads_end(cuts: list[int], following: bytes) -> None:
    buffer = bytearray()
    searched = 0
    data = HEAD + following
    edges = [0, *sorted(cuts), len(data)]
    for start, end in pairwise(edges):
        buffer += data[start:end]
        found = end_of_head(buffer, searched)
        if found >= 0:
            break
        searched = len(buffer)
    assert found == len(HEAD)


@given(st.integers(0, len(HEAD) - 5), st.sampled_from([b"\n", b"\r"]))
def test_a_line_end_that_is_none_is_found_at_once(position: int, end: bytes) -> None:
    broken = bytearray(HEAD[:position] + end + b"x" + HEAD[position:-4])
    with pytest.raises(HeadError):
        end_of_head(broken, 0)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(noise: bytes) -> None:
    with contextlib.suppress(HeadError):
        parse_request(noise + b"\r\n\r\n")
    with contextlib.suppress(HeadError):
        parse_response(noise + b"\r\n\r\n")


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/a/b", "/a/b"),
        (b"/a?b=/c?d", "/a"),
        (b"http://host:1/a?b", "/a"),
        (b"http://host", "/"),
        (b"*", "*"),
        (b"/a?u=http://x/y", "/a"),
        (b"/%E5%A5%BD", "/%E5%A5%BD"),
        (b"/\xff", "/\ufffd"),
    ],
)
def test_the_path_is_without_query_and_authority(target: bytes, path: str) -> None:
    assert parse_request(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % target).path == path


@pytest.mark.parametrize(
    ("version", "connection", "kept"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: close\r\n", False),
        (b"1.1", b"Connection: x, CLOSE\r\n", False),
        (b"1.1", b"Connection: x\r\nConnection: close\r\n", False),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: Keep-Alive\r\n", True),
    ],
)
def test_who_keeps_the_connection(version: bytes, connection: bytes, kept: bool) -> None:
    assert parse_request(b"GET / HTTP/%b\r\nHost: a\r\n%b\r\n" % (version, connection)).keep_alive is kept


def test_only_http_1_1_can_be_asked_to_continue() -> None:
    head = b"POST / HTTP/1.%d\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"
    assert parse_request(head % 1).expect_continue
    assert not parse_request(head % 0).expect_continue


def test_a_response_whose_lengths_disagree_follows_its_chunks() -> None:
    response = parse_response(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert response.chunked
    assert response.content_length == -1


@pytest.mark.parametrize("line", [b"HTTP/1.1 200", b"HTTP/1.1 200 ", b"HTTP/1.0 200 All is \xe4 well"])
def test_status_lines_that_are_tolerated(line: bytes) -> None:
    assert parse_response(line + b"\r\n\r\n").status == 200


@pytest.mark.parametrize(
    "line", [b"HTTP/1.1 20 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.1  200 OK", b"HTTP/3 200", b"ICY 200 OK", b""]
)
def test_status_lines_that_are_not(line: bytes) -> None:
    with pytest.raises(HeadError) as caught:
        parse_response(line + b"\r\n\r\n")
    assert caught.value.status == 502


def test_the_number_of_headers_is_bounded() -> None:
    head = b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * (MAX_HEADERS + 1) + b"\r\n"
    with pytest.raises(HeadError):
        parse_response(head)


@pytest.mark.parametrize(
    ("method", "status", "body"),
    [(b"GET", 200, True), (b"HEAD", 200, False), (b"GET", 204, False), (b"GET", 304, False), (b"GET", 103, False)],
)
def test_which_answers_have_a_body(method: bytes, status: int, body: bool) -> None:
    assert has_body(method, parse_response(b"HTTP/1.1 %d x\r\n\r\n" % status)) is body


def test_trailers_must_not_change_the_framing() -> None:
    assert parse_trailer(b"X-Sum: 1").value == b"1"
    for line in (b"Content-Length: 1", b"transfer-encoding: chunked", b"Host: x", b"no colon"):
        with pytest.raises(HeadError):
            parse_trailer(line)
