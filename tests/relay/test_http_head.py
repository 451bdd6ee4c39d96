"""Reading heads strictly. What is refused over real sockets is in test_client."""

from __future__ import annotations

import contextlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.relay.errors import HeadError
from prefillwatch.relay.http_head import (
    MAX_HEADERS,
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
    ("method", "target", "path"),
    [
        (b"GET", b"/a/b", "/a/b"),
        (b"GET", b"/a?b=/c?d", "/a"),
        (b"GET", b"http://host:1/a?b", "/a"),
        (b"GET", b"http://host:1", "/"),
        (b"OPTIONS", b"*", "*"),
        (b"GET", b"/a?u=http://x/y", "/a"),
        (b"GET", b"/%E5%A5%BD", "/%E5%A5%BD"),
        (b"GET", b"//a//b", "//a//b"),
        (b"GET", b"/a%20b?c=%0A", "/a%20b"),
    ],
)
def test_the_path_is_without_query_and_authority(method: bytes, target: bytes, path: str) -> None:
    assert parse_request(b"%b %b HTTP/1.1\r\nHost: host:1\r\n\r\n" % (method, target)).path == path


@pytest.mark.parametrize(
    ("method", "target", "sent"),
    [
        (b"GET", b"http://a/b?c", b"/b?c"),
        (b"GET", b"HTTP://A:80/b", b"/b"),
        (b"GET", b"https://a:443/b", b"/b"),
        (b"GET", b"http://a", b"/"),
        (b"GET", b"http://a:?q=/x", b"/?q=/x"),
        (b"OPTIONS", b"http://a", b"*"),
        (b"OPTIONS", b"http://a/", b"/"),
    ],
)
def test_a_url_as_target_is_a_path_for_the_next_hop(method: bytes, target: bytes, sent: bytes) -> None:
    request = parse_request(b"%b %b HTTP/1.1\r\nHost: a\r\n\r\n" % (method, target))
    assert (request.target, request.authority) == (sent, b"a")


HOSTS = [b"a", b"A.b-c_d.", b"localhost:8000", b"127.0.0.1", b"[::1]:80", b"[fe80::1%25eth0]", b"a%20b", b"a:"]


@pytest.mark.parametrize("host", HOSTS)
def test_names_and_addresses_are_hosts(host: bytes) -> None:
    assert parse_request(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host).header(b"host") == host


def refused(head: bytes) -> HeadError:
    with pytest.raises(HeadError) as caught:
        parse_request(head)
    return caught.value


@pytest.mark.parametrize(
    "host",
    [
        b"",
        b"a b",
        b"user@h",
        b"h/p",
        b"a, b",
        b"a,b",
        b"\xff",
        b"h:port",
        b"h:1:2",
        b"h#f",
        b"h?q",
        b"http://h",
        b"[::1",
        b"a%2",
        b":80",
        b"h:123456",
    ],
)
def test_what_is_no_host_is_refused(host: bytes) -> None:
    assert refused(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host).reason == "host"
    assert refused(b"GET / HTTP/1.0\r\nHost: %b\r\n\r\n" % host).reason == "host"


@pytest.mark.parametrize(
    "line",
    [
        b"GET * HTTP/1.1",
        b"PRI * HTTP/1.1",
        b"GET v HTTP/1.1",
        b"GET v/w HTTP/1.1",
        b"GET a:80 HTTP/1.1",
        b"GET ftp://a/ HTTP/1.1",
        b"GET http:/a HTTP/1.1",
        b"GET http:///x HTTP/1.1",
        b"GET http://user@a/ HTTP/1.1",
        b"GET http://a,b/ HTTP/1.1",
        b"GET ?q HTTP/1.1",
        b"OPTIONS ** HTTP/1.1",
        b"GET /caf\xc3\xa9 HTTP/1.1",
        b"GET /\xc0\xaf HTTP/1.1",
        b"GET /a#b HTTP/1.1",
        b"GET /a\\b HTTP/1.1",
        b"GET /a%00 HTTP/1.1",
        b"GET /a%0D%0a HTTP/1.1",
        b"GET /a%7f?b HTTP/1.1",
    ],
)
def test_what_is_no_target_is_refused(line: bytes) -> None:
    error = refused(line + b"\r\nHost: a\r\n\r\n")
    assert (error.status, error.reason in ("target", "request_line")) == (400, True)


@pytest.mark.parametrize("host", [b"b", b"a:81", b"a.b", b"localhost"])
def test_a_target_and_a_host_that_contradict_each_other_are_refused(host: bytes) -> None:
    assert refused(b"GET http://a/ HTTP/1.1\r\nHost: %b\r\n\r\n" % host).reason == "host"


@pytest.mark.parametrize("length", [b"00", b"007", b"0200"])
def test_a_length_that_could_be_octal_is_refused(length: bytes) -> None:
    assert refused(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %b\r\n\r\n" % length).reason == "framing"


def test_connection_names_a_handful_of_options() -> None:
    head = b"GET / HTTP/1.1\r\nHost: a\r\n%b\r\n"
    assert parse_request(head % (b"Connection: " + b"x," * 60 + b"close\r\n")).connection == {b"x", b"close"}
    for lines in (b"Connection: " + b"," * 70 + b"\r\n", b"".join(b"Connection: a%d\r\n" % i for i in range(70))):
        assert refused(head % lines).reason == "header_line"


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


@pytest.mark.parametrize("lines", [b"Expect: 100-continue\r\nExpect: x\r\n", b"Expect:\r\nExpect: x\r\n"])
def test_every_expectation_counts(lines: bytes) -> None:
    assert refused(b"POST / HTTP/1.1\r\nHost: a\r\n%b\r\n" % lines).status == 417


@pytest.mark.parametrize(
    ("head", "doubtful"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", False),
        (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n", True),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n", False),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n", True),
        (b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n", True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n", True),
        (b"HTTP/1.1 304 Not Modified\r\n", False),
    ],
)
def test_framing_that_others_read_differently_is_doubtful(head: bytes, doubtful: bool) -> None:
    assert parse_response(head + b"\r\n").doubtful is doubtful


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
    kept = parse_trailer(b"X-Sum: 1")
    assert kept is not None
    assert kept.value == b"1"
    assert parse_trailer(b"Content-Length: 1", refuse_framing=False) is None
    for line in (b"Content-Length: 1", b"transfer-encoding: chunked", b"Host: x", b"no colon"):
        with pytest.raises(HeadError):
            parse_trailer(line)
