from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.wire.ndjson import LineParser

LINES = b'{"a":1}\n{"b":"x y"}\r\n\n{"c":[]}\n'


def payloads(parser: LineParser, data: bytes) -> list[bytes]:
    return [payload for _, payload in parser.feed(data)]


def test_each_line_is_an_event() -> None:
    parser = LineParser()
    assert payloads(parser, LINES) == [b'{"a":1}', b'{"b":"x y"}', b"", b'{"c":[]}']
    assert parser.idle


@given(st.lists(st.integers(0, len(LINES)), max_size=8))
def test_wherever_it_is_cut(cuts: list[int]) -> None:
    parser, found = LineParser(), []
    bounds = [0, *sorted(cuts), len(LINES)]
    for start, end in itertools.pairwise(bounds):
        found += payloads(parser, LINES[start:end])
    assert [each for each in found if each] == [b'{"a":1}', b'{"b":"x y"}', b'{"c":[]}']


def test_a_last_line_without_its_end() -> None:
    parser = LineParser()
    assert payloads(parser, b'{"a":1}\n{"b"') == [b'{"a":1}']
    assert not parser.idle
    assert [payload for _, payload in parser.finish()] == [b'{"b"']


def test_after_a_hole_it_goes_on_with_the_next_line() -> None:
    parser = LineParser()
    parser.feed(b'{"a":')
    parser.resync()
    assert payloads(parser, b'2}\n{"b":1}\n') == [b'{"b":1}']
