"""Requests and answers as nobody writes them on purpose, made from good ones. The same seed makes the same ones."""

from __future__ import annotations

import random
from collections.abc import Iterator

REQUESTS = [
    b"GET /v1/models HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",
    (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n"
        b'{"stream":true}'
    ),
    (
        b"POST /x?y=z HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nX-T: 1\r\n\r\n"
    ),
    b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
    b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://a/b?c HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    (
        b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
        b"POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /c HTTP/1.1\r\nHost: a\r\n\r\n"
    ),
    b"PUT /f HTTP/1.1\r\nHost: a\r\nConnection: X-A, keep-alive\r\nX-A: 1\r\nTE: trailers\r\nContent-Length: 0\r\n\r\n",
]
ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"9\r\ndata: a\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\nX-T: 1\r\n\r\n"
    ),
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: a\r\n\r\nHTTP/1.1 201 Made\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b'HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n5;a="b"\r\nhello\r\n0\r\n\r\n',
]
#: What trips readers up, wherever it stands.
_TRICKS = [
    *(bytes([byte]) for byte in b"\x00\t\n\x0b\x0c\r !\"#%,/0:;=?@\\\x7f\x80\xff"),
    *(b"\r\n", b"\r\n\r\n", b"\n\n", b"\r\r\n", b" \r\n", b"\r\n ", b"\r\n\t", b"0\r\n\r\n", b"%0d%0a", b"HTTP/1.1 "),
    b"GET /x HTTP/1.1\r\n",
    *(b"Transfer-Encoding: chunked\r\n", b"transfer-encoding:\tchunked\r\n", b"Transfer-Encoding: identity\r\n"),
    *(b"Transfer-Encoding: chunked, chunked\r\n", b"Transfer-Encoding : chunked\r\n"),
    b"Transfer_Encoding: chunked\r\n",
    *(b"Content-Length: 0\r\n", b"Content-Length: 7\r\n", b"Content-Length: +5\r\n", b"Content-Length: 5, 5\r\n"),
    *(b"Connection: close\r\n", b"Connection: content-length\r\n", b"Connection: transfer-encoding, host\r\n"),
    *(b"Upgrade: h2c\r\n", b"Host: b\r\n", b"Host:\r\n", b"Expect: 100-continue\r\n", b"Trailer: Content-Length\r\n"),
    *(b"ffffffffffffffff", b"0x5", b"-1", b"1e1", b"05", b"HTTP/1.0", b"HTTP/2.0", b"http/1.1"),
]  # fmt: skip


def mutated(originals: list[bytes], seed: int, count: int) -> Iterator[bytes]:
    """``count`` of them."""
    chance = random.Random(seed)
    for _ in range(count):
        data = chance.choice(originals)
        for _ in range(chance.choice((1, 1, 1, 2, 2, 3))):
            data = _mutate(data, chance)
        yield data


def _mutate(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    kind = chance.randrange(7)
    if kind == 0:  # something more, anywhere
        return data[:at] + chance.choice(_TRICKS) + data[at:]
    if kind == 1:  # a header more
        line = data.find(b"\r\n", at) + 2
        return data[:line] + chance.choice([trick for trick in _TRICKS if trick.endswith(b"\r\n")]) + data[line:]
    if kind == 2:  # something else
        return data[:at] + chance.choice(_TRICKS) + data[at + chance.randrange(1, 4) :]
    if kind == 3:  # less
        return data[:at] + data[at + chance.randrange(1, 6) :]
    if kind == 4:  # something twice
        end = at + chance.randrange(1, 40)
        return data[:end] + data[at:end] + data[end:]
    if kind == 5:  # a bit turned over
        return data[: at - 1] + bytes([data[at - 1] ^ 1 << chance.randrange(8)]) + data[at:] if at else data
    return data[:at]  # nothing more


def some_cuts(data: bytes, seed: int) -> list[int]:
    """One to four places to cut at."""
    chance = random.Random(seed)
    return sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(1, 5)))
