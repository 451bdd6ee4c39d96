from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard

from prefillwatch.wire.inflate import Identity, InflateError, inflater_for

TEXT = b"data: hello\n\n" * 50


def raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKED = {
    "gzip": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    "Deflate ": raw(TEXT),
    "br": brotli.compress(TEXT),
    "zstd": zstandard.compress(TEXT),
    "deflate, gzip": gzip.compress(zlib.compress(TEXT)),
}


@pytest.mark.parametrize("coding", PACKED)
@pytest.mark.parametrize("size", [1, 3, 10_000])
def test_pieces_of_any_size(coding: str, size: int) -> None:
    inflater = inflater_for(coding, 10_000)
    packed = PACKED[coding]
    assert b"".join(inflater.feed(packed[start : start + size]) for start in range(0, len(packed), size)) == TEXT


@pytest.mark.parametrize("coding", ["", "identity", " Identity , "])
def test_nothing_to_inflate(coding: str) -> None:
    assert isinstance(inflater_for(coding, 5), Identity)


def test_gzip_of_several_members() -> None:
    assert inflater_for("gzip", 10_000).feed(gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


@pytest.mark.parametrize("coding", PACKED)
def test_the_limit_is_exact(coding: str) -> None:
    assert inflater_for(coding, len(TEXT)).feed(PACKED[coding]) == TEXT
    with pytest.raises(InflateError):
        inflater_for(coding, len(TEXT) - 1).feed(PACKED[coding])


@pytest.mark.parametrize("coding", ["compress", "x", "gzip, gzip, gzip"])
def test_unknown_codings(coding: str) -> None:
    with pytest.raises(InflateError):
        inflater_for(coding, 10)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
@pytest.mark.parametrize("junk", [b"data: {}\n\n", b"\x00" * 50, b"\xff" * 50, b"{" * 50])
def test_junk_raises_one_kind_of_error_at_most(coding: str, junk: bytes) -> None:
    inflater = inflater_for(coding, 1000)
    try:
        out = inflater.feed(junk) + inflater.feed(junk)
    except InflateError:
        return
    assert len(out) <= 1000


@pytest.mark.parametrize("packer", [gzip.compress, zlib.compress, brotli.compress, zstandard.compress])
def test_a_stream_cut_short_gives_what_it_has(packer: Callable[[bytes], bytes]) -> None:
    coding = {gzip.compress: "gzip", zlib.compress: "deflate", brotli.compress: "br"}.get(packer, "zstd")
    packed = packer(TEXT)
    assert TEXT.startswith(inflater_for(coding, 10_000).feed(packed[: len(packed) - 4]))
