"""Finding the end of a body and its payload, wherever the reads end."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.relay.errors import FramingError, HeadError
from prefillwatch.relay.framing import (
    MOST_CHUNKS,
    ChunkedScanner,
    CloseScanner,
    LengthScanner,
    whole_chunk_prefixes,
)

Fed = tuple[bytes, bytes, bool]  # what belonged to the body, its payload, whether it is complete

size_lines = st.sampled_from(
    [b"%x\r\n", b"%X\r\n", b"000%x\r\n", b"%x;a=b\r\n", b"%x \t;a\r\n", b'%x;a="b;\\"c";d\r\n']
)
chunks = st.tuples(st.binary(min_size=1, max_size=40), size_lines).map(
    lambda made: made[1] % len(made[0]) + made[0] + b"\r\n"
)
trailers = st.sampled_from([b"", b"X-A: 1\r\n", b"X-A: 1\r\nx-b:\r\n"])
bodies = st.tuples(st.lists(chunks, max_size=6).map(b"".join), trailers).map(
    lambda made: made[0] + b"0\r\n" + made[1] + b"\r\n"
)


def feed(scanner: ChunkedScanner | LengthScanner | CloseScanner, data: bytes, cuts: list[int]) -> Fed:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    body, payload = b"", b""
    for start, end in itertools.pairwise(edges):
        taken, part = scanner.feed(data[start:end])
        body += data[start : start + taken]
        payload += part
        if taken < end - start:
            break
    return body, payload, scanner.done


@given(bodies, st.binary(max_size=30), st.lists(st.integers(0, 300), max_size=30))
def test_any_split_of_a_chunked_body_gives_the_same(body: bytes, following: bytes, cuts: list[int]) -> None:
    whole = feed(ChunkedScanner(), body, [])
    assert whole[0] == body
    assert whole[2]
    assert feed(ChunkedScanner(), body + following, cuts) == whole
    assert feed(ChunkedScanner(), body + following, list(range(len(body)))) == whole


@given(st.lists(st.binary(min_size=1, max_size=5000), max_size=5), st.lists(st.integers(0, 20_000), max_size=9))
def test_the_payload_is_what_was_put_in(payloads: list[bytes], cuts: list[int]) -> None:
    body = b"".join(b"%x\r\n%b\r\n" % (len(payload), payload) for payload in payloads) + b"0\r\n\r\n"
    assert feed(ChunkedScanner(), body, cuts) == (body, b"".join(payloads), True)


@given(st.binary(max_size=100), st.binary(max_size=100), st.lists(st.integers(0, 200), max_size=9))
def test_a_body_of_known_length(body: bytes, following: bytes, cuts: list[int]) -> None:
    assert feed(LengthScanner(len(body)), body + following, cuts) == (body, body, True)


def test_a_body_that_is_too_short_is_not_done() -> None:
    assert feed(LengthScanner(5), b"abcd", []) == (b"abcd", b"abcd", False)
    assert feed(CloseScanner(), b"abcd", [2]) == (b"abcd", b"abcd", False)


@pytest.mark.parametrize(
    "body",
    [
        b"+5\r\nabcde\r\n",
        b"-5\r\nabcde\r\n",
        b"0x5\r\nabcde\r\n",
        b" 5\r\nabcde\r\n",
        b"5 \r\nabcde\r\n",
        b"\r\nabcde\r\n",
        b"g\r\n",
        b"1_0\r\n",
        b"5\nabcde\r\n",
        b"5\r\r\nabcde\r\n",
        b"5;a\x00\r\nabcde\r\n",
        b"5;\r\nabcde\r\n",
        b"5;;a\r\nabcde\r\n",
        b"5;a b\r\nabcde\r\n",
        b"5;a=\r\nabcde\r\n",
        b'5;a="b\r\nabcde\r\n',
        b"5;a=b=c\r\nabcde\r\n",
        b"5;(a)\r\nabcde\r\n",
        b"5;a=b \r\nabcde\r\n",
        b"5\r\nabcdeXX",
        b"5\r\nabcde\rX",
        b"5\r\nabcde\n",
        b"ffffffffffffffff\r\n",
        b"5;" + b"a" * 5000 + b"\r\n",
        b"0\r\nX-A : b\r\n\r\n",
        b"0\r\nContent-Length: 3\r\n\r\n",
        b"0\r\nX-A: b\n\r\n",
        b"0\r\n" + b"X-A: 123456789012345678901234567890\r\n" * 1000 + b"\r\n",
    ],
)
def test_malformed_framing_is_refused_wherever_the_reads_end(body: bytes) -> None:
    for cuts in ([], list(range(len(body)))):
        with pytest.raises((FramingError, HeadError)):
            feed(ChunkedScanner(), body, cuts)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=9))
def test_noise_is_read_or_refused(noise: bytes, cuts: list[int]) -> None:
    try:
        feed(ChunkedScanner(), noise, cuts)
    except (FramingError, HeadError):
        return


def test_a_scanner_knows_when_it_stands_between_chunks() -> None:
    scanner = ChunkedScanner()
    for data, between in (
        (b"", True),
        (b"3", False),
        (b"\r", False),
        (b"\na", False),
        (b"bc", False),
        (b"\r", False),
        (b"\n", True),
        (b"2\r\nab\r\n", True),
        (b"0\r\n", False),
        (b"\r\n", False),
    ):
        scanner.feed(data)
        assert scanner.between_chunks is between, data
    assert scanner.done


def test_whole_chunks_are_known_by_their_length() -> None:
    prefixes = whole_chunk_prefixes(5000)
    for size in range(1, 4990):
        chunk = b"%x\r\n%b\r\n" % (size, b"x" * size)
        prefix = prefixes[len(chunk)]
        assert chunk.startswith(prefix)
        assert chunk[len(prefix) : -2] == b"x" * size
    assert len(b"0\r\n\r\n") not in prefixes or prefixes[5] != b"0\r\n"
    assert max(prefixes) <= 5000


def test_one_call_takes_no_more_than_a_turn_of_the_loop_has_time_for() -> None:
    tiny = b"1\r\nx\r\n"
    body = tiny * 2000 + b"2;a=b\r\nyy\r\n" * 2000 + b"0\r\n" + b"a:\r\n" * 1000 + b"\r\n"
    scanner = ChunkedScanner()
    payload, calls, rest = b"", 0, body
    while not scanner.done:
        end, part = scanner.feed(rest)
        assert rest[:end].count(b"\n") <= 2 * MOST_CHUNKS
        payload += part
        rest = rest[end:]
        calls += 1
    assert (rest, payload) == (b"", b"x" * 2000 + b"yy" * 2000)
    assert calls >= 5000 // MOST_CHUNKS
