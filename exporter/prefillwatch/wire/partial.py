"""What a JSON document that was cut off somewhere still says.

The document is closed at the last place where that is possible: an unfinished string value is ended where it breaks
off, an unfinished key, number or literal is dropped, and open brackets are closed.
"""

from __future__ import annotations

import re
from typing import Final

from prefillwatch.wire.structure import without_escapes

#: Looked at of one document: some 2,000 messages. Each costs as much as 400 bytes inside a string.
MOST_TOKENS: Final = 20_000
#: Brackets inside each other beyond which a document is closed: decoders go no deeper.
_MOST_DEPTH: Final = 1000

_TOKEN: Final = re.compile(rb'"[^"]*"?|[{}\[\],:]')
_QUOTE: Final = ord('"')
_HALF_ESCAPE: Final = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_HALF_PAIR: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
_LONGEST_ESCAPE: Final = len(rb"\u0000")
_LONGEST_CHARACTER: Final = 4  # bytes
_CLOSER: Final = {b"{": ord("}"), b"[": ord("]")}


def close(document: bytes, most_tokens: int = MOST_TOKENS) -> bytes:
    """A document that can be parsed, made of the complete parts of `document`; `{}` when there are none.

    Of more than `most_tokens` brackets, commas, colons and strings the rest is left out.
    """
    # The brackets open at the end are those open at the cut: every token that changes them also moves the cut.
    closers = bytearray()  # of the open brackets
    cut = 0
    before = b""  # the structural token before this one
    bare = without_escapes(document)
    for match, _ in zip(_TOKEN.finditer(bare), range(most_tokens), strict=False):
        token = bare[match.start() : match.start() + 1]
        if token == b'"':
            start, end = match.span()
            whole = end - start > 1 and bare[end - 1] == _QUOTE
            if before == b":" or (before in (b"[", b",") and closers.endswith(b"]")):
                if not whole:
                    return document[: _end_of_text(document, bare, start, end)] + b'"' + closers[::-1]
                cut = end
            continue
        before = token
        if token in _CLOSER:
            if len(closers) == _MOST_DEPTH:
                break
            closers.append(_CLOSER[token])
        elif token in b"}]" and closers:
            closers.pop()
        if token != b":":
            cut = match.start() if token == b"," else match.end()
    return document[:cut] + closers[::-1] or b"{}"


def _end_of_text(document: bytes, bare: bytes, start: int, end: int) -> int:
    """Where the last whole character of an unfinished string ends."""
    if (half := _HALF_ESCAPE.search(bare, max(start, end - _LONGEST_ESCAPE), end)) is not None:
        end = half.start()
    if (half := _HALF_PAIR.search(bare, max(start, end - _LONGEST_ESCAPE), end)) is not None:
        end = half.start()
    if document[end - 1] >= 0x80:
        least = max(start + 1, end - _LONGEST_CHARACTER)
        while end > least and document[end - 1] & 0xC0 == 0x80:
            end -= 1
        end = max(end - 1, start + 1)
    return end
