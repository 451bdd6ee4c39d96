"""How answers pass, by what the two sides can do."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.relay.answer import Answer
from prefillwatch.relay.framing import MOST_CHUNKS
from prefillwatch.relay.http_head import Response, parse_request, parse_response

EVENTS = b"data: a\n\n", b"data: b\n\n"
CHUNKED = b"9\r\ndata: a\n\n\r\n9\r\ndata: b\n\n\r\n0\r\nX-T: 1\r\n\r\n"


class Shortener:
    """Takes away every "b"."""

    def feed(self, data: bytes) -> bytes:
        return data.replace(b"b", b"")

    def finish(self) -> bytes:
        return b"!"


def answer(
    framing: bytes, *, minor: int = 1, observed: bool = True, keep: bool = True, strip: bool = False, status: int = 200
) -> Answer:
    request = parse_request(b"POST /v1/completions HTTP/1.%d\r\nHost: a\r\n\r\n" % minor)
    return Answer(
        request, response(framing, status), observed=observed, keep=keep, stripper=Shortener() if strip else None
    )


def response(framing: bytes, status: int = 200) -> Response:
    return parse_response(b"HTTP/1.1 %d OK\r\nContent-Type: text/event-stream\r\n%b\r\n" % (status, framing))


TE, CL, NONE = b"Transfer-Encoding: chunked\r\n", b"Content-Length: 18\r\n", b""


@pytest.mark.parametrize(
    ("framing", "minor", "strip", "body", "expected", "keeps"),
    [
        (TE, 1, False, CHUNKED, CHUNKED, True),
        (CL, 1, False, b"".join(EVENTS), b"".join(EVENTS), True),
        (TE, 0, False, CHUNKED, b"".join(EVENTS), False),
        (TE, 1, True, CHUNKED, b"12\r\ndata: a\n\ndata: \n\n!\r\n0\r\nX-T: 1\r\n\r\n", True),
        (CL, 1, True, b"".join(EVENTS), b"12\r\ndata: a\n\ndata: \n\n!\r\n0\r\n\r\n", True),
        (TE, 0, True, CHUNKED, b"data: a\n\ndata: \n\n!", False),
    ],
)
def test_passages(framing: bytes, minor: int, strip: bool, body: bytes, expected: bytes, keeps: bool) -> None:
    passing = answer(framing, minor=minor, strip=strip)
    extra, outgoing, payload = passing.feed(body)
    assert (extra, outgoing, payload) == (False, expected, b"".join(EVENTS))
    assert passing.done
    assert passing.upstream_keeps
    assert passing.client_keeps is (keeps and minor == 1)


def test_an_answer_without_end_is_over_when_upstream_closes() -> None:
    passing = answer(NONE)
    assert (passing.until_close, passing.client_until_close, passing.client_keeps) == (True, True, False)
    assert passing.feed(EVENTS[0]) == (False, EVENTS[0], EVENTS[0])
    assert not passing.done
    assert passing.finish() == b""
    assert passing.done


def test_an_answer_without_end_gets_one_where_it_is_framed_anew() -> None:
    passing = answer(NONE, strip=True)
    assert (passing.until_close, passing.client_until_close, passing.client_keeps) == (True, False, True)
    assert passing.feed(EVENTS[0])[1] == b"9\r\ndata: a\n\n\r\n"
    assert passing.finish() == b"1\r\n!\r\n0\r\n\r\n"


@given(st.lists(st.integers(0, len(CHUNKED)), max_size=8), st.sampled_from([0, 1]))
def test_any_split_passes_the_same_bytes(cuts: list[int], minor: int) -> None:
    passing = answer(TE, minor=minor)
    edges = [0, *sorted(cuts), len(CHUNKED)]
    parts = [passing.feed(CHUNKED[start:end]) for start, end in pairwise(edges)]
    assert b"".join(outgoing for _, outgoing, _ in parts) == (CHUNKED if minor else b"".join(EVENTS))
    assert b"".join(payload for *_, payload in parts) == b"".join(EVENTS)
    assert passing.done


FALSE_TRAILERS = b"9\r\ndata: a\n\n\r\n0\r\nContent-Length: 3\r\nX-T: 1\r\nTransfer-Encoding: chunked\r\n\r\n"


@given(st.lists(st.integers(0, len(FALSE_TRAILERS)), max_size=8))
def test_a_trailer_about_framing_is_left_out_and_the_answer_is_whole(cuts: list[int]) -> None:
    passing = answer(TE)
    edges = [0, *sorted(cuts), len(FALSE_TRAILERS)]
    outgoing = b"".join(passing.feed(FALSE_TRAILERS[start:end])[1] for start, end in pairwise(edges))
    assert outgoing == b"9\r\ndata: a\n\n\r\n0\r\nX-T: 1\r\n\r\n"
    assert passing.done


def test_it_is_left_out_as_well_where_the_answer_is_framed_anew() -> None:
    assert answer(TE, strip=True).feed(FALSE_TRAILERS)[1] == b"a\r\ndata: a\n\n!\r\n0\r\nX-T: 1\r\n\r\n"


@pytest.mark.parametrize(
    ("framing", "status"),
    [(TE + CL, 200), (CL, 204), (TE, 204), (CL, 304), (TE, 304), (b"Connection: close\r\n" + CL, 200)],
)
def test_a_connection_whose_framing_is_doubtful_is_not_used_again(framing: bytes, status: int) -> None:
    assert not answer(framing, status=status).upstream_keeps


@given(st.lists(st.integers(0, len(CHUNKED)), max_size=8))
def test_the_hot_path_is_open_exactly_between_chunks(cuts: list[int]) -> None:
    passing = answer(TE)
    boundaries = {0, 14, 28}
    position = 0
    for cut in sorted(cuts):
        passing.feed(CHUNKED[position:cut])
        position = cut
        assert passing.is_plain_stream is (position in boundaries)


def test_the_hot_path_is_closed_to_all_that_is_not_plain() -> None:
    assert answer(TE).is_plain_stream
    assert not answer(TE, observed=False).is_plain_stream
    assert not answer(TE, minor=0).is_plain_stream
    assert not answer(TE, strip=True).is_plain_stream
    assert not answer(CL).is_plain_stream
    assert not answer(NONE).is_plain_stream


def test_bytes_beyond_the_end_are_told() -> None:
    assert answer(CL).feed(b"".join(EVENTS) + b"x") == (True, b"".join(EVENTS), b"".join(EVENTS))
    assert answer(TE).feed(CHUNKED + b"x")[:2] == (True, CHUNKED)
    assert answer(TE, status=204).feed(b"x")[:2] == (True, b"")


def json_answer(framing: bytes) -> Answer:
    request = parse_request(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n\r\n")
    head = parse_response(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%b\r\n\r\n" % framing)
    return Answer(request, head, observed=True, keep=True, stripper=None)


def test_a_long_json_answer_is_shown_in_part() -> None:
    passing = json_answer(b"Transfer-Encoding: chunked")
    megabyte = b"x" * 2**20
    assert [passing.observes(megabyte) for _ in range(9)] == [True] * 8 + [False]


def test_of_a_json_answer_that_is_too_long_from_the_start_only_sizes_are_told() -> None:
    passing = json_answer(b"Content-Length: 99999999")
    piece = b"x" * 2**18
    assert passing.observed
    assert not any(passing.observes(piece) for _ in range(9))
    assert [passing.hide(piece) for _ in range(6)] == [2**18, 0, 0, 0, 2**20, 0]
    assert (passing.take_unshown(), passing.take_unshown()) == (2**18, 0)


def test_a_stream_that_nobody_can_read_is_not_plain_any_more() -> None:
    passing = answer(TE)
    assert passing.is_plain_stream
    passing.hidden = True
    assert not passing.is_plain_stream
    assert not passing.observes(b"x")


@pytest.mark.parametrize(
    ("minor", "keep", "said"),
    [(1, True, b""), (1, False, b"Connection: close\r\n"), (0, True, b"Connection: close\r\n")],
)
def test_what_is_said_of_the_connection(minor: int, keep: bool, said: bytes) -> None:
    head = answer(CL, minor=minor, keep=keep).head
    assert head == b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 18\r\n%b\r\n" % said


@pytest.mark.parametrize("strip", [False, True])
def test_an_answer_in_tiny_chunks_passes_in_portions(strip: bool) -> None:
    stream = b"1\r\na\r\n" * 5000 + b"0\r\nX-T: 1\r\n\r\n"
    passing = answer(TE, strip=strip)
    portions = [passing.feed(stream)]
    assert not passing.is_plain_stream
    while passing.is_behind:
        portions.append(passing.feed(b""))
    assert max(len(payload) for *_, payload in portions) <= MOST_CHUNKS
    assert not any(extra for extra, *_ in portions)
    outgoing = b"".join(outgoing for _, outgoing, _ in portions)
    assert passing.done
    if not strip:
        assert outgoing == stream


def test_what_comes_while_it_is_behind_waits_its_turn() -> None:
    passing = answer(TE)
    first = passing.feed(b"1\r\na\r\n" * (MOST_CHUNKS + 1))
    second = passing.feed(b"1\r\nb\r\n0\r\n\r\nextra")
    assert (first[2], second) == (b"a" * MOST_CHUNKS, (True, b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n", b"ab"))
