from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefillwatch.wire.partial import close


@pytest.mark.parametrize(
    ("cut", "closed"),
    [
        (b"", b"{}"),
        (b"{", b"{}"),
        (b'{"mod', b"{}"),
        (b'{"model"', b"{}"),
        (b'{"model":', b"{}"),
        (b'{"model":"ll', b'{"model":"ll"}'),
        (b'{"model":"llama"', b'{"model":"llama"}'),
        (b'{"n":1', b"{}"),
        (b'{"n":12,', b'{"n":12}'),
        (b'{"n":12,"stream":tr', b'{"n":12}'),
        (b'{"n":12,"stream":true}', b'{"n":12,"stream":true}'),
        (b'{"a":[{"b":"c\\', b'{"a":[{"b":"c"}]}'),
        (b'{"a":[{"b":"c\\u00e', b'{"a":[{"b":"c"}]}'),
        (b'{"a":[{"b":"c\\ud83d', b'{"a":[{"b":"c"}]}'),
        (b'{"a":[{"b":"c\\ud83d\\ude00', b'{"a":[{"b":"c\\ud83d\\ude00"}]}'),
        (b'{"a":[{"b":"c\\\\ud83d', b'{"a":[{"b":"c\\\\ud83d"}]}'),
        (b'{"a":["x","y', b'{"a":["x","y"]}'),
        (b'{"a":[1,2', b'{"a":[1]}'),
        (b'{"a":{"x":1},"b', b'{"a":{"x":1}}'),
        ('{"a":"é好'.encode()[:-1], '{"a":"é"}'.encode()),
        ('{"a":"é好'.encode(), '{"a":"é"}'.encode()),
    ],
)
def test_a_cut_document_is_closed_at_the_last_possible_place(cut: bytes, closed: bytes) -> None:
    assert close(cut) == closed


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4), st.booleans())
def test_every_beginning_of_an_object_can_be_parsed(value: dict[str, Any], ascii_only: bool) -> None:
    document = json.dumps(value, ensure_ascii=ascii_only).encode()
    for end in range(len(document)):
        closed = json.loads(close(document[:end]))
        assert set(closed) <= set(value)
    assert json.loads(close(document)) == value


@pytest.mark.parametrize("piece", [b"[", b'{"a":', b'"', b"\\", b'"\\', b'"a",', b"}"])
def test_it_takes_linear_time(piece: bytes) -> None:
    # Not a measurement: quadratic work on this would take minutes.
    start = time.monotonic()
    close(piece * 200_000)
    assert time.monotonic() - start < 20
