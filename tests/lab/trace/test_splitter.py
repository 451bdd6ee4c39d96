"""Bytes in, whole events out; wherever the bytes are cut."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.lab.trace import splitter
from prefillwatch.lab.trace.errors import TraceError
from prefillwatch.lab.trace.splitter import EventSplitter

ODD = [
    {"name": 'void f<int>(int, {lambda()#3}::operator()) "quoted \\" ]}', "args": {"Dims": [[1, [2, 3]], []], "x": {}}},
    {"name": "\\", "args": {"a": {"b": {"c": {"d": {"e": {"f": {"g": [[[[[[[1]]]]]]]}}}}}}}},
    {},
    {"name": "\u00e9\u4e16\U0001f600", "ts": 1.5e12, "flag": True, "none": None},
]


def split(*pieces: bytes) -> list[object]:
    splitter = EventSplitter()
    events = [json.loads(raw) for piece in pieces for raw in splitter.feed(piece)]
    return events + [json.loads(raw) for raw in splitter.finish()]


def as_object(events: object, **before: object) -> bytes:
    return json.dumps({**before, "traceEvents": events, "traceName": "x"}).encode()


def test_the_events_of_an_object_come_in_their_order() -> None:
    assert split(as_object(ODD, schemaVersion=1)) == ODD


def test_a_bare_list_is_a_trace_too() -> None:
    assert split(json.dumps(ODD).encode()) == ODD


@pytest.mark.parametrize("text", [as_object(ODD, deviceProperties=[{"traceEvents": 1}]), json.dumps(ODD).encode()])
def test_byte_by_byte_gives_the_same_as_all_at_once(text: bytes) -> None:
    assert split(*(text[at : at + 1] for at in range(len(text)))) == ODD


@given(st.lists(st.integers(0, 600), max_size=12))
def test_any_cuts_give_the_same(cuts: list[int]) -> None:
    text = as_object(ODD, host='a "traceEvents" in a text', deep={"traceEvents": [{"name": "not this one"}]})
    edges = [0, *sorted(cuts), len(text)]
    assert split(*(text[start:end] for start, end in pairwise(edges))) == ODD


def test_white_space_is_free() -> None:
    assert split(b'\xef\xbb\xbf \n{ "traceEvents"\n :\r\n\t[ {"a" : 1 }\n,\n\n{"b":2} ] \n}\n\n') == [
        {"a": 1},
        {"b": 2},
    ]


def test_a_value_that_reads_like_the_key_is_not_the_key() -> None:
    assert split(as_object([{"a": 1}], traceName="traceEvents")) == [{"a": 1}]


def test_what_follows_the_events_is_passed_over() -> None:
    assert split(b'{"traceEvents": [{"a": 1}], "more": [{"b": 2}, {"c": {}}]}') == [{"a": 1}]


def test_the_end_of_the_last_event_is_known() -> None:
    text = as_object([{"a": 1}, {"b": 2}])
    splitter = EventSplitter()
    assert len(list(splitter.feed(text))) == 2
    assert splitter.events_end == text.index(b"]")


def test_with_no_event_it_is_where_the_first_would_be() -> None:
    splitter = EventSplitter()
    assert list(splitter.feed(b'{"traceEvents": []}')) == []
    assert splitter.events_end == len(b'{"traceEvents": [')


def test_a_bare_list_may_lack_its_end() -> None:
    """The format allows it, for processes that die while they write."""
    assert split(b'[{"a": 1},\n{"b": 2},\n') == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "it is empty"),
        (b"  \n", "it is empty"),
        (b"<html>", "no JSON"),
        (b"PK\x03\x04zip", "no JSON"),
        (b'"traceEvents"', "no JSON"),
        (b'{"displayTimeUnit": "ms"}', 'no "traceEvents" list'),
        (b'{"nested": {"traceEvents": []}}', 'no "traceEvents" list'),
        (b'{"displayTimeUnit": "m', 'no "traceEvents" list'),
        (b'{"traceEvents": {"a": 1}}', "is no list"),
        (b'{"traceEvents": null}', "is no list"),
        (b'{"traceEvents": [{"a": 1}, 7]}', "an event should begin at byte 27"),
        (b'{"traceEvents": [{"a": 1}, [2]]}', "an event should begin at byte 27"),
        (b'{"traceEvents": [{"a": 1}, {"b": ', "cut off"),
        (b'{"traceEvents": [{"a": 1}, {"b": "', "cut off"),
        (b'{"traceEvents": [{"a": 1}', "cut off"),
        (b'{"traceEvents": [{"a": 1}], "trace', "cut off"),
        (b'[{"a": 1}, {"b', "cut off"),
    ],
)
def test_what_is_no_whole_trace_is_named(text: bytes, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        split(text)


def test_events_before_the_damage_are_given_first() -> None:
    splitter = EventSplitter()
    events = splitter.feed(b'{"traceEvents": [{"a": 1}, {"b": 2}, oops')
    assert [next(events), next(events)] == [b'{"a": 1}', b'{"b": 2}']
    with pytest.raises(TraceError, match="byte 37"):
        next(events)


def test_an_event_without_end_is_not_held_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitter, "LARGEST_EVENT", 1000)
    with pytest.raises(TraceError, match="begins at byte 17"):
        split(b'{"traceEvents": [{"name": "', *[b"x" * 100] * 20)


def test_a_head_without_end_is_not_held_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitter, "LARGEST_EVENT", 1000)
    with pytest.raises(TraceError, match="more than 16 MiB"):
        split(b'{"host_name": "', *[b"x" * 100] * 20)


def test_a_huge_text_is_one_event() -> None:
    name = 'x{[\\"' * 200_000
    events = split(*_in_pieces(as_object([{"name": name}, {"a": 1}]), 50_000))
    assert events == [{"name": name}, {"a": 1}]


def test_a_large_event_in_many_pieces_is_not_read_anew_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(splitter, "_balanced_end", lambda *_: looks.append(1) or -1)
    assert split(*_in_pieces(as_object([{"name": "x" * 2_000_000}]), 1000)) == [{"name": "x" * 2_000_000}]
    assert len(looks) < 80


def test_braces_that_nobody_closes_cost_no_more_than_others() -> None:
    """Each of them could be one of many levels; only one is tried."""
    events = [{"name": "k", "args": {"grid": [1, 2, 3], "context": at}} for at in range(3000)]
    text = as_object(events).replace(b'"context": 5', b'"context": {,[[ 5', 1)
    with pytest.raises(TraceError, match="cut off"):
        split(*_in_pieces(text, 20_000))


def _in_pieces(text: bytes, size: int) -> list[bytes]:
    return [text[at : at + size] for at in range(0, len(text), size)]
