"""Keyed digests of a prompt's beginnings, to know later how much of it a server may have had in its cache.

Digest i covers everything up to the end of block i, so two prompts share a prefix of as many blocks as their digests
agree from the start. The key is made anew in every process and never leaves it: no text can be recovered or guessed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Final

BLOCK_CHARS: Final = 256
#: Token ids per block where a prompt comes as ids; about as much text as BLOCK_CHARS.
BLOCK_TOKENS: Final = 64
MAX_BLOCKS: Final = 512

_KEY: Final = os.urandom(32)


def text_fingerprint(text: str) -> tuple[int, ...]:
    """One digest per whole block of `text`."""
    end = min(len(text) // BLOCK_CHARS, MAX_BLOCKS) * BLOCK_CHARS
    if not end:
        return ()
    # A lone surrogate is legal in JSON and must not make this fail.
    blocks = (
        text[start : start + BLOCK_CHARS].encode("utf-8", "surrogatepass") for start in range(0, end, BLOCK_CHARS)
    )
    return _rolling(blocks, b"text")


def token_fingerprint(tokens: list[int]) -> tuple[int, ...]:
    """One digest per whole block of token ids."""
    end = min(len(tokens) // BLOCK_TOKENS, MAX_BLOCKS) * BLOCK_TOKENS
    blocks = (repr(tokens[start : start + BLOCK_TOKENS]).encode() for start in range(0, end, BLOCK_TOKENS))
    return _rolling(blocks, b"tokens")


def stand_in(data: bytes) -> str:
    """A short text that stands for media in a prompt's fingerprint."""
    return hashlib.blake2b(data, key=_KEY, digest_size=16).hexdigest()


def _rolling(blocks: Iterable[bytes], person: bytes) -> tuple[int, ...]:
    digest = hashlib.blake2b(key=_KEY, digest_size=8, person=person)
    digests = []
    for block in blocks:
        digest.update(block)
        digests.append(int.from_bytes(digest.digest(), "little"))
    return tuple(digests)
