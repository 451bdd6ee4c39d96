"""Attacks by the head of a request, and by its framing."""

from __future__ import annotations

from tests.hostile.attack import Attack
from tests.hostile.stranger import Reply, Stranger

_GET = b"GET /x HTTP/1.1\r\nHost: x\r\n"
_CHUNKED = b"POST /anything HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def get(line: bytes) -> bytes:
    return _GET + line + b"\r\n\r\n"


def one_byte_chunks(stranger: Stranger, n: int) -> list[Reply]:
    return stranger.all_at_once([_CHUNKED + b"1\r\nx\r\n" * (n // 6)] * 8)


def byte_by_byte(stranger: Stranger, n: int) -> list[Reply]:
    return stranger.say(get(b"a: " + b"b" * n), piece=1)


def pipelined(stranger: Stranger, n: int) -> list[Reply]:
    return stranger.say(get(b"X-Script: short") * n, answers=n)


def empty_lines(stranger: Stranger, n: int) -> list[Reply]:
    return stranger.say(b"\r\n" * n + get(b"a: b"))


def no_end(stranger: Stranger, n: int) -> list[Reply]:
    return stranger.all_at_once([_GET + b"ab:cd\r\n" * (n // 7)] * 4)


HEADS = [
    Attack(
        "a header line of blanks that ends in a control byte",
        lambda stranger, n: stranger.say(get(b"a:" + b" " * n + b"\x01")),
        n=15_000,
        back={400},
    ),
    Attack(
        "a header line of tabs and blanks that ends in a control byte",
        lambda stranger, n: stranger.say(get(b"a:" + b"\t " * (n // 2) + b"\x7f")),
        n=15_000,
        back={400},
    ),
    Attack(
        "a trailer line of blanks that ends in a control byte",
        lambda stranger, n: [
            reply
            for _ in range(8)
            for reply in stranger.say(_CHUNKED + b"0\r\n" + (b"a:" + b" " * (n // 8) + b"\x01\r\n") + b"\r\n")
        ],
        n=8_000,  # a line of framing has at most 4 KiB
        back={400},
    ),
    Attack("a head without end", no_end, n=100_000, back={431, 0}),
    Attack("a head that comes byte by byte", byte_by_byte, n=1_000, back={200}),
    Attack("nothing but empty lines before a request", empty_lines, n=50_000, back={200, 400, 431}),
    Attack(
        "thousands of pipelined requests of 45 bytes",
        pipelined,
        n=250,
        back={200},
        cpu={"relay": 25.0, "observer": 25.0},
    ),
    Attack(
        "as many headers as there may be",
        lambda stranger, n: stranger.say(_GET + b"".join(b"a%d: b\r\n" % k for k in range(n)) + b"\r\n"),
        n=62,
        back={200},
    ),
    Attack(
        "more headers than there may be",
        lambda stranger, n: stranger.say(_GET + b"a:b\r\n" * n + b"\r\n"),
        n=3_000,
        back={431},
    ),
    Attack(
        "a target of percent signs",
        lambda stranger, n: stranger.say(b"GET /" + b"%ff" * (n // 3) + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
        n=15_000,
        back={200, 400, 414},
    ),
    Attack(
        "a target of bytes that are no text",
        lambda stranger, n: stranger.say(b"GET /" + b"\xff" * n + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
        n=15_000,
        back={200, 400},
    ),
    Attack(
        "a list of thousands of options in Connection",
        lambda stranger, n: stranger.say(get(b"Connection: " + b"a," * (n // 2) + b"b")),
        n=15_000,
        back={200, 400},
    ),
    Attack(
        "a list of thousands of protocols in Upgrade",
        lambda stranger, n: stranger.say(get(b"Connection: upgrade\r\nUpgrade: " + b"h2c," * (n // 4))),
        n=15_000,
        back={200, 501},
    ),
    Attack(
        "request ids and promises of many thousand digits",
        lambda stranger, n: stranger.say(
            get(b"X-Request-Id: %b\r\nx-slo-ttft-ms: 0.%b\r\nx-slo-tpot-ms: %be9" % ((b"9" * (n // 3),) * 3))
        ),
        n=15_000,
        back={200, 400},
    ),
    Attack(
        "bodies in chunks of one byte",
        one_byte_chunks,
        n=128 * 1024,
        back={413, 400, 0},
    ),
    Attack(
        "a body in chunks whose sizes have thousands of zeros or extensions",
        lambda stranger, n: stranger.all_at_once(
            [
                _CHUNKED + (b"0" * 15 + b"1\r\nx\r\n") * (n // 36) + b"0\r\n\r\n",
                _CHUNKED + (b'1;a=b;c="d"\r\nx\r\n') * (n // 32) + b"0\r\n\r\n",
                _CHUNKED + (b"1;" + b"a" * 4000 + b"\r\nx\r\n") * (n // 8010) + b"0\r\n\r\n",
                _CHUNKED + b"0" * n,
            ]
        ),
        n=64 * 1024,
        back={200, 413, 400, 0},
    ),
    Attack(
        "a body that comes byte by byte",
        lambda stranger, n: stranger.say(
            b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % n + b"x" * n, piece=1
        ),
        n=1_000,
        back={200},
    ),
    Attack(
        "chunks that come byte by byte",
        lambda stranger, n: stranger.say(_CHUNKED + b"a\r\n0123456789\r\n" * (n // 15) + b"0\r\n\r\n", piece=1),
        n=1_000,
        back={200},
    ),
    Attack(
        "trailers without end",
        lambda stranger, n: stranger.say(_CHUNKED + b"0\r\n" + b"a:b\r\n" * (n // 5)),
        n=60_000,
        back={400, 413, 431, 0},
    ),
]
