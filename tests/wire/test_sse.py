from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.wire.sse import EventParser


def parse(*reads: bytes, limit: int = 1 << 20) -> list[tuple[bytes, bytes]]:
    parser = EventParser(limit)
    return [event for read in reads for event in parser.feed(read)]


def payloads(*reads: bytes) -> list[bytes]:
    return [data for _, data in parse(*reads)]


def test_an_event_is_there_with_the_read_that_completes_it() -> None:
    parser = EventParser()
    assert parser.feed(b'data: {"a"') == []
    assert parser.feed(b":1}\n") == []
    assert parser.feed(b"\n") == [(b"", b'{"a":1}')]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_gives_the_same_events(end: bytes) -> None:
    stream = b"data: one\n\ndata: two\ndata: three\n\n".replace(b"\n", end)
    assert payloads(stream) == [b"one", b"two\nthree"]


def test_crlf_cut_in_the_middle_is_one_line_end() -> None:
    assert payloads(b"data: one\r", b"\ndata: two\r", b"\n\r", b"\ndata: three\r\n\r\n") == [b"one\ntwo", b"three"]


def test_a_blank_line_ended_by_cr_does_not_wait_for_its_lf() -> None:
    parser = EventParser()
    assert parser.feed(b"data: one\r\n\r") == [(b"", b"one")]
    assert parser.feed(b"\ndata: two\r\n\r\n") == [(b"", b"two")]


def test_a_byte_order_mark_is_taken_off_once() -> None:
    assert payloads(b"\xef\xbb\xbfdata: one\n\n") == [b"one"]
    assert payloads(b"\xef", b"\xbb", b"\xbfdata: one\n\n") == [b"one"]
    assert payloads(b"\xef\xbb\xbf\xef\xbb\xbfdata: one\n\ndata: two\n\n") == [b"two"]


def test_comments_are_counted_and_are_no_events() -> None:
    parser = EventParser()
    assert parser.feed(b": waiting\n\n" * 5) == []
    assert parser.feed(b":\n: keep-alive\n\ndata: one\n: inside\ndata: two\n\n") == [(b"", b"one\ntwo")]
    assert parser.comments == 8


def test_fields_in_any_order_with_and_without_the_space() -> None:
    assert parse(b"id: 7\nevent: ping\nretry: 10\ndata:one\n\n") == [(b"ping", b"one")]
    assert parse(b"data: one\nretry:10\nevent:ping\nid:7\n\n") == [(b"ping", b"one")]
    assert parse(b"event: ping\n\ndata: one\n\n") == [(b"", b"one")]
    assert parse(b"data:  two spaces\ndata\nnonsense: x\n\n") == [(b"", b" two spaces\n")]


def test_a_cr_inside_what_looks_like_one_line() -> None:
    parser = EventParser()
    assert parser.feed(b"data: one\n\n") == [(b"", b"one")]
    assert parser.feed(b"data: two\rdata: three\n\n") == [(b"", b"two\nthree")]
    assert parser.feed(b"data: four\r\n\n") == [(b"", b"four")]


def test_only_cr_and_lf_end_a_line() -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf".encode()
    assert payloads(b"data: " + text + b"\n\n") == [text]


def test_an_event_beyond_the_limit_is_given_up_and_the_next_one_read() -> None:
    parser = EventParser(1000)
    assert parser.feed(b"data: " + b"x" * 1500) == []
    assert parser.feed(b"x" * 1500 + b"\ndata: more\n") == []
    assert parser.feed(b"\ndata: next\n\n") == [(b"", b"next")]
    assert parser.given_up == 1


def test_an_event_of_many_short_lines_is_given_up_too() -> None:
    parser = EventParser(1000)
    assert parser.feed(b"data:\n" * 5000) == []
    assert parser.feed(b"\ndata: next\n\n") == [(b"", b"next")]
    assert parser.given_up == 1


def test_one_whole_event_beyond_the_limit_in_one_read() -> None:
    parser = EventParser(100)
    assert parser.feed(b"data: 1\n\n") == [(b"", b"1")]
    assert parser.feed(b"data: " + b"x" * 200 + b"\n\n") == []
    assert parser.feed(b"data: 2\n\n") == [(b"", b"2")]
    assert parser.given_up == 1


def test_a_long_event_under_the_limit_is_read() -> None:
    long = b"x" * 700_000
    assert payloads(b"data: " + long, b"\n\n") == [long]


def test_memory_stays_flat_while_a_line_never_ends() -> None:
    parser = EventParser()
    piece = b"x" * 65536
    parser.feed(piece)
    tracemalloc.start()
    for _ in range(3200):  # 200 MiB
        parser.feed(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
    assert parser.given_up == 1
    assert parser.feed(b"\n\ndata: still here\n\n") == [(b"", b"still here")]


def test_after_lost_bytes_it_goes_on_at_the_next_boundary() -> None:
    parser = EventParser()
    parser.feed(b"data: one\n\ndata: tw")
    parser.resync()
    assert parser.feed(b"half of another\n") == []
    assert parser.feed(b"\ndata: four\n\n") == [(b"", b"four")]
    assert parser.given_up == 0


@pytest.mark.parametrize("start", [b"", b"\n", b"\n\n", b"\r\n\r\n"])
def test_after_lost_bytes_the_start_of_an_event_is_recognised(start: bytes) -> None:
    parser = EventParser()
    parser.feed(b"data: tw")
    parser.resync()
    assert parser.feed(start + b'data: {"a":1}\n\n') == [(b"", b'{"a":1}')]


def test_after_lost_bytes_text_that_looks_like_a_field_is_not_trusted() -> None:
    parser = EventParser()
    parser.resync()
    assert parser.feed(b'data: x"}\n\ndata: two\n\n') == [(b"", b"two")]


def test_idle_means_between_events() -> None:
    parser = EventParser()
    assert not parser.idle  # a byte-order mark may come
    for read, idle in (
        (b"data: 1\n\n", True),
        (b"d", False),
        (b"ata: 2\n", False),
        (b"\n", True),
        (b"event: x\n", False),
    ):
        parser.feed(read)
        assert parser.idle is idle


def test_the_end_of_the_stream_completes_an_event_that_lacks_its_blank_line() -> None:
    parser = EventParser()
    assert parser.feed(b"data: one\n\ndata: [DONE]") == [(b"", b"one")]
    assert parser.finish() == [(b"", b"[DONE]")]
    assert parser.finish() == []


LINES = [
    *(b"data: x", b"data:y", b"data", b"data: \xe5\xa5\xbd", b"", b""),
    *(b"event: e", b"id: 1", b"retry: 5", b": c", b"junk"),
]
ENDS = [b"\n", b"\r\n", b"\r"]


@given(
    lines=st.lists(st.sampled_from(LINES), max_size=30),
    ends=st.lists(st.sampled_from(ENDS), min_size=1, max_size=5),
    mark=st.booleans(),
    data=st.data(),
)
def test_any_split_gives_the_same_events(
    lines: list[bytes], ends: list[bytes], mark: bool, data: st.DataObject
) -> None:
    stream = (b"\xef\xbb\xbf" if mark else b"") + b"".join(
        line + ends[index % len(ends)] for index, line in enumerate(lines)
    )
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=12)))
    whole, pieces = EventParser(), EventParser()
    reads = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    expected = whole.feed(stream)
    assert [event for read in reads for event in pieces.feed(read)] == expected
    assert pieces.comments == whole.comments
    single = EventParser()
    assert [event for byte in stream for event in single.feed(bytes([byte]))] == expected
