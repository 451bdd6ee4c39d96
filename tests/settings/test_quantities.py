"""Durations, sizes and token counts in text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefillwatch.settings.quantities import (
    format_duration,
    format_size,
    format_tokens,
    parse_duration,
    parse_size,
    parse_tokens,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("60s", 60),
        ("1m30s", 90),
        ("1h", 3600),
        ("1.5s", 1.5),
        ("250us", 0.00025),
        ("0", 0),
        ("2d", 172800),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["60", "", "s", "5 s", "-1s", "1e3s", "1s!", "١s", "1S"])
def test_other_text_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; write a number with its unit"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("64MiB", 64 * 2**20), ("64 mib", 64 * 2**20), ("1kB", 1000), ("1.5KiB", 1536), ("65536", 65536)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "64M", "-1", "64MiBs", "1e3"])
def test_other_text_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@given(st.integers(1, 10**9))
def test_a_written_duration_reads_back(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-5)


@given(st.integers(0, 2**40))
def test_a_written_size_reads_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.integers(0, 2**24))
def test_written_tokens_read_back(tokens: int) -> None:
    assert parse_tokens(format_tokens(tokens)) == tokens
