"""What a JSON document that was cut off somewhere still says.

The document is closed at the last place where that is possible: an unfinished string value is ended where it breaks
off, an unfinished key, number or literal is dropped, and open brackets are closed.
"""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    rb'"(?P<body>[^"\\]*(?:\\(?:u[0-9a-fA-F]{4}|[^u])[^"\\]*)*)(?P<end>"?)|[{}\[\],:]', re.DOTALL
)
_HALF_PAIR: Final = re.compile(rb"(?<!\\)(?:\\\\)*(\\u[dD][89abAB][0-9a-fA-F]{2})\Z")
_CLOSER: Final = {b"{": b"}", b"[": b"]"}


def close(document: bytes) -> bytes:
    """A document that can be parsed, made of the complete parts of `document`; `{}` when there are none."""
    # The brackets open at the end are those open at the cut: every token that changes them also moves the cut.
    open_brackets: list[bytes] = []
    cut = 0
    before = b""  # the structural token before this one
    for match in _TOKEN.finditer(document):
        token = match.group()[:1]
        if token == b'"':
            if before == b":" or (before in (b"[", b",") and open_brackets[-1:] == [b"["]):
                cut = match.end() if match["end"] else _end_of_text(document, match.end())
                if not match["end"]:
                    return document[:cut] + b'"' + _closers(open_brackets)
            continue
        before = token
        if token in _CLOSER:
            open_brackets.append(token)
        elif token in b"}]" and open_brackets:
            open_brackets.pop()
        if token != b":":
            cut = match.start() if token == b"," else match.end()
    return document[:cut] + _closers(open_brackets) or b"{}"


def _end_of_text(document: bytes, end: int) -> int:
    """Where the last whole character of an unfinished string ends."""
    half = _HALF_PAIR.search(document, max(0, end - 64), end)
    if half is not None:
        return half.start(1)
    if document[end - 1] >= 0x80:
        while document[end - 1] & 0xC0 == 0x80:
            end -= 1
        end -= 1
    return end


def _closers(open_brackets: list[bytes]) -> bytes:
    return b"".join(_CLOSER[bracket] for bracket in reversed(open_brackets))
