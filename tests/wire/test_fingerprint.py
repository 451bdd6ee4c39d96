from __future__ import annotations

import subprocess
import sys

import pytest

from prefillwatch.wire.fingerprint import BLOCK_CHARS, MAX_BLOCKS, stand_in, text_fingerprint, token_fingerprint


def test_only_whole_blocks_have_digests() -> None:
    assert text_fingerprint("x" * (BLOCK_CHARS - 1)) == ()
    assert len(text_fingerprint("x" * (2 * BLOCK_CHARS + 1))) == 2
    assert len(text_fingerprint("x" * BLOCK_CHARS * (MAX_BLOCKS + 5))) == MAX_BLOCKS


def test_blocks_are_counted_in_characters() -> None:
    assert len(text_fingerprint("好" * BLOCK_CHARS)) == 1


def test_a_digest_covers_everything_before_it() -> None:
    one = text_fingerprint("a" * BLOCK_CHARS + "c" * BLOCK_CHARS)
    two = text_fingerprint("b" * BLOCK_CHARS + "c" * BLOCK_CHARS)
    assert one[0] != two[0]
    assert one[1] != two[1]


def test_text_and_token_ids_never_meet() -> None:
    assert token_fingerprint([1] * 64)[0] != text_fingerprint(repr([1] * 64)[:BLOCK_CHARS].ljust(BLOCK_CHARS))[0]


@pytest.mark.apart
def test_the_key_is_new_in_every_process() -> None:
    code = "from prefillwatch.wire.fingerprint import *; print(text_fingerprint('x' * 256)[0], stand_in(b'x'))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert other != [str(text_fingerprint("x" * 256)[0]), stand_in(b"x")]
