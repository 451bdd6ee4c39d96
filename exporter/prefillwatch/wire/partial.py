"""What a JSON document that was cut off somewhere still says.

The document is closed at the last place where that is possible: an unfinished string value is ended where it breaks off,
an unfinished key, number or literal is dropped, and open brackets are closed.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    rb'"(?P<body>[^"\\]*(?:\\(?:u[0-9a-fA-F]{4}|[^u])[^"\\]*)*)(?P<end>"?)|[{}\[\],:]', re.DOTALL
)
_CLOSER: Final = {b"{": b"}", b"[": b"]"}


def close(document: bytes) -> bytes:
    """A document that can be parsed, made of the complete parts of `document`; `{}` when there are none."""
    open_brackets: list[bytes] = []
    cut, closers = 0, b""
    before = b""  # the structural token before this one
    for match in _TOKEN.finditer(document):
        token = match.group()[:1]
        if token == b'"':
            is_value = before == b":" or (before in (b"[", b",") and open_brackets[-1:] == [b"["])
            if not match["end"]:
                return _end_string(document, match, open_brackets) if is_value else document[:cut] + closers
            if not is_value:
                continue
            cut, closers = match.end(), _closers(open_brackets)
            continue
        before = token
        if token in _CLOSER:
            open_brackets.append(token)
        elif token == b",":
            cut, closers = match.start(), _closers(open_brackets)
            continue
        elif token == b":":
            continue
        elif open_brackets:
            open_brackets.pop()
        cut, closers = match.end(), _closers(open_brackets)
    return document[:cut] + closers or b"{}"


def _end_string(document: bytes, match: re.Match[bytes], open_brackets: list[bytes]) -> bytes:
    end = match.end()
    if match["body"] and match["body"][-1] >= 0x80:
        end = _before_last_character(document, end)
    return document[:end] + b'"' + _closers(open_brackets)


def _before_last_character(document: bytes, end: int) -> int:
    """Cut the last character off: it may lack bytes."""
    while document[end - 1] & 0xC0 == 0x80:
        end -= 1
    return end - 1


def _closers(open_brackets: list[bytes]) -> bytes:
    return b"".join(_CLOSER[bracket] for bracket in reversed(open_brackets))
