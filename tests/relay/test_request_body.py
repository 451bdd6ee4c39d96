"""A request body: counted while it comes, and the same when it goes on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.relay.errors import BodyTooLargeError, FramingError, WastefulChunksError
from prefillwatch.relay.http_head import Request, parse_request
from prefillwatch.relay.request_body import RequestBody


def request(framing: bytes) -> Request:
    return parse_request(b"POST / HTTP/1.1\r\nHost: a\r\n%b\r\n" % framing)


CHUNKED = request(b"Transfer-Encoding: chunked\r\n")


@given(st.binary(max_size=500), st.lists(st.integers(0, 500), max_size=9))
def test_a_body_with_a_length_goes_on_as_it_came(data: bytes, cuts: list[int]) -> None:
    body = RequestBody(request(b"Content-Length: %d\r\n" % len(data)), limit=500)
    position = 0
    for cut in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        assert body.feed(data[position:cut]) == (cut - position, data[position:cut])
        position = cut
    assert body.done
    assert body.size == len(data)
    assert body.whole() == b"".join(body.framed()) == data


def test_without_framing_there_is_no_body() -> None:
    body = RequestBody(request(b""), limit=5)
    assert body.done
    assert list(body.framed()) == []


def test_chunks_are_made_anew() -> None:
    body = RequestBody(CHUNKED, limit=100)
    for data in (b"2;x=y\r\nab\r\n", b"003\r\ncde\r\n0\r\nX-T: 1\r\n\r\n"):
        body.feed(data)
    assert body.done
    assert b"".join(body.framed()) == b"5\r\nabcde\r\n0\r\nX-T: 1\r\n\r\n"


def test_a_length_beyond_the_limit_is_refused_before_it_comes() -> None:
    with pytest.raises(BodyTooLargeError):
        RequestBody(request(b"Content-Length: 6\r\n"), limit=5)


def test_chunks_beyond_the_limit_are_refused_when_they_come() -> None:
    body = RequestBody(CHUNKED, limit=5)
    body.feed(b"5\r\nabcde\r\n")
    with pytest.raises(BodyTooLargeError):
        body.feed(b"1\r\nf\r\n")


def test_framing_without_payload_is_bounded_too() -> None:
    body = RequestBody(CHUNKED, limit=1000)
    with pytest.raises(BodyTooLargeError):
        body.feed((b"1;" + b"x" * 4000 + b"\r\na\r\n") * 400)
    assert body.size < 1000


def test_one_byte_chunks_are_refused_long_before_the_limit() -> None:
    body = RequestBody(CHUNKED, limit=64 * 2**20)
    chunks = b"1\r\nx\r\n" * 500
    for _ in range(27):
        assert body.feed(chunks)[0] == len(chunks)
    with pytest.raises(WastefulChunksError):
        body.feed(chunks)


@pytest.mark.parametrize("size", [64, 1000, 8192])
def test_chunks_as_clients_make_them_are_taken(size: int) -> None:
    body = RequestBody(CHUNKED, limit=64 * 2**20)
    chunk = b"%x\r\n%b\r\n" % (size, b"x" * size)
    while body.size < 4 * 2**20:
        body.feed(chunk * 100)
    assert body.feed(b"0\r\n\r\n")[0]
    assert body.done


def test_malformed_chunks_are_refused() -> None:
    with pytest.raises(FramingError):
        RequestBody(CHUNKED, limit=100).feed(b"2\r\nabc\r\n")


def test_a_body_that_comes_byte_by_byte_is_gathered() -> None:
    body = RequestBody(request(b"Content-Length: 200000\r\n"), limit=200_000)
    for _ in range(200_000):
        body.feed(b"x")
    assert len(list(body.framed())) < 5
