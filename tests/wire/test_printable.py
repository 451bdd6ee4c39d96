from __future__ import annotations

import pytest

from prefillwatch.wire.printable import printable


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("chatcmpl-1", "chatcmpl-1"),
        ("Größe 好", "Größe 好"),
        ("a\x9b2Jb", "a\\x9b2Jb"),
        ("a\x1b[2J", "a\\x1b[2J"),
        ("a\u202eb", "a\\u202eb"),
        ("a\ud800", "a\\ud800"),
        ("a\nb", "a\\nb"),
        ("", ""),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(name: str, shown: str) -> None:
    assert printable(name) == shown
    assert shown.isprintable()
