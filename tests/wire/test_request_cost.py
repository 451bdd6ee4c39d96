"""What a body may cost whoever reads it: CPU in proportion to its bytes, memory within a bound, whatever is in it."""

from __future__ import annotations

import gc
import gzip
import time
import tracemalloc
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard

from prefillwatch.wire.request import read_request

pytestmark = pytest.mark.apart

MiB = 1 << 20
EMPTY_MEMBER = gzip.compress(b"", 9, mtime=0)


def times(piece: bytes, size: int) -> bytes:
    return piece * (size // len(piece))


def text(inside: bytes) -> bytes:
    return b'{"model":"m","messages":[{"role":"user","content":"' + inside + b'"}]}'


#: What is sent, made to a size in bytes, and under which Content-Encoding.
BODIES: dict[str, tuple[Callable[[int], bytes], str]] = {
    "brackets": (lambda n: times(b"[", n), ""),
    "braces": (lambda n: times(b'{"a":', n), ""),
    "empty messages": (lambda n: b'{"messages":[' + times(b"{},", n) + b"{}]}", ""),
    "empty parts": (lambda n: b'{"messages":[{"content":[' + times(b"{},", n) + b"{}]}]}", ""),
    "empty tools": (lambda n: b'{"tools":[' + times(b"{},", n) + b"{}]}", ""),
    "misfits": (lambda n: b'{"messages":[' + times(b"7,", n) + b"{}]}", ""),
    "nested parts": (lambda n: b'{"messages":' + times(b'[{"content":', n), ""),
    "strings": (lambda n: b'{"prompt":[' + times(b'"",', n) + b'""]}', ""),
    "token ids": (lambda n: b'{"prompt":[' + times(b"7,", n) + b"7]}", ""),
    "lists of ids": (lambda n: b'{"prompt":[' + times(b"[7],", n) + b"[7]]}", ""),
    "the same member": (lambda n: b"{" + times(b'"n":1,', n) + b'"n":1}', ""),
    "a number": (lambda n: b'{"n":' + times(b"1", n) + b"}", ""),
    "cut off in escapes": (lambda n: b'{"messages":[{"content":"' + times(b"\\n", n), ""),
    "cut off in quotes": (lambda n: b'{"messages":[{"content":"' + times(b'\\"', n), ""),
    "cut off in backslashes": (lambda n: b'{"a":"' + times(b"\\", n), ""),
    "cut off in strings": (lambda n: b'{"a":["' + times(b'","', n), ""),
    "cut off in a character": (lambda n: b'{"a":"' + times(b"\x80", n), ""),
    "junk at the end": (lambda n: b'{"messages":[' + times(b"{},", n) + b"{}]", ""),
    "a lone surrogate": (lambda n: text(b"\\ud800" + times(b"x", n)), ""),
    "UTF-16": (lambda n: text(times(b"x", n // 2)).decode().encode("utf-16"), ""),
    "one wide character": (lambda n: text("\U0001f600".encode() + times(b"x", n)), ""),
    "blanks": (lambda n: times(b" ", n), ""),
    "quotes": (lambda n: times(b'"', n), ""),
    "empty gzip members": (lambda n: times(EMPTY_MEMBER, n), "gzip"),
    "empty gzip members, packed again": (lambda n: gzip.compress(times(EMPTY_MEMBER, 64 * n)), "gzip, gzip"),
    "empty deflate blocks": (lambda n: times(b"\x00\x00\x00\xff\xff", n), "deflate"),
    "gzip with a long name": (lambda n: EMPTY_MEMBER[:3] + b"\x08" + EMPTY_MEMBER[4:10] + times(b"x", n), "gzip"),
    "false gzip": (lambda n: text(times(b"x", n)), "gzip"),
}
#: Bombs: little on the wire.
BOMBS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "gzip": (gzip.compress, "gzip"),
    "deflate": (zlib.compress, "deflate"),
    "br": (lambda data: brotli.compress(data, quality=5), "br"),
    "zstd": (zstandard.compress, "zstd"),
}


def cpu_seconds(encoding: str, body: bytes) -> float:
    """The least of three: others run on this machine, too."""
    found = []
    for _ in range(3):
        began = time.process_time()
        assert read_request("/v1/completions", encoding, body) is not None
        assert read_request("/v1/chat/completions", encoding, body) is not None
        found.append(time.process_time() - began)
    return min(found)


def peak_bytes(encoding: str, body: bytes) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        read_request("/v1/completions", encoding, body)
        read_request("/v1/chat/completions", encoding, body)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", BODIES)
def test_four_times_the_bytes_cost_no_more_than_four_times_the_work(name: str) -> None:
    make, encoding = BODIES[name]
    small, large = cpu_seconds(encoding, make(MiB // 4)), cpu_seconds(encoding, make(MiB))
    # Quadratic work would be sixteen times as much; what is below 50 ms is too little to tell.
    assert large < 8 * small + 0.05


@pytest.mark.parametrize("name", BODIES)
def test_memory_stays_near_the_size_of_the_body(name: str) -> None:
    make, encoding = BODIES[name]
    assert peak_bytes(encoding, make(2 * MiB)) < 32 * MiB


@pytest.mark.parametrize("inside", [b"[", b'{"a":', b'{"messages":[' + b"{}," * 1000])
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_what_is_looked_at_of_it(name: str, inside: bytes) -> None:
    pack, encoding = BOMBS[name]
    small, large = pack(times(inside, 8 * MiB)), pack(times(inside, 32 * MiB))
    assert cpu_seconds(encoding, large) < 4 * cpu_seconds(encoding, small) + 0.05
    assert peak_bytes(encoding, large) < 40 * MiB


def test_a_body_of_images_and_one_of_a_hundred_thousand_tokens_are_read_in_full() -> None:
    image = b'{"type":"image_url","image_url":{"url":"data:image/png;base64,' + b"A" * (4 * MiB) + b'"}}'
    body = (
        b'{"messages":[{"role":"user","content":[' + image + b"," + image + b',{"type":"text","text":"What?"}]}],"n":2}'
    )
    facts = read_request("/v1/chat/completions", "", body)
    assert facts is not None
    assert (facts.media, facts.prompt_chars, facts.choices, facts.complete) == (2, 5, 2, True)
    words = read_request("/v1/chat/completions", "", text(b"words, [more] " * 30_000))
    assert words is not None
    assert (words.prompt_chars, words.complete, len(words.prefix)) == (14 * 30_000, True, 512)
