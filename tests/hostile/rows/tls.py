"""Attacks on TLS."""

from __future__ import annotations

import contextlib
import ssl

from tests.hostile.attack import Attack
from tests.hostile.stranger import CLOSED, Reply, Stranger
from tests.hostile.tls import anybody

_GET = b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"


def _hello() -> bytes:
    """A ClientHello as anybody sends it."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = anybody().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def half_open(stranger: Stranger, n: int) -> list[Reply]:
    """Handshakes that are begun, and no more is said."""
    for _ in range(n):
        stranger.connect(handshake=False).send(_hello())
    stranger.wait(1.0)
    return stranger.say(_GET)


def handshakes(stranger: Stranger, n: int) -> list[Reply]:
    """Begun all at once, so that as many are ready in one turn."""
    lines = [stranger.connect(handshake=False) for _ in range(n)]
    hello = _hello()
    for line in lines:
        line.send(hello)
    stranger.wait(0.3)
    return stranger.say(_GET)


def no_tls(stranger: Stranger, n: int) -> list[Reply]:
    """What is no TLS, and a hello that is cut into records of one byte."""
    fates = []
    for k in range(n):
        line = stranger.connect(handshake=False)
        hello = _hello()
        cut = b"".join(b"\x16\x03\x01\x00\x01" + bytes([byte]) for byte in hello[5:])
        line.send((_GET, b"\x16\x03\x01\xff\xff" + b"a" * 1000, hello[:5] + b"\x00" * 500, cut)[k % 4])
        fates.append(line)
    return stranger.fates(fates, 1.0) or [CLOSED]


def tiny_records(stranger: Stranger, n: int) -> list[Reply]:
    """A request in records of one byte."""
    request = b"GET /x HTTP/1.1\r\nHost: x\r\na: " + b"b" * n + b"\r\n\r\n"
    line = stranger.connect()
    for at in range(len(request)):
        line.send(request[at : at + 1])
    stranger.link.bytes += 22 * len(request)
    return line.replies()


def comes_and_goes(stranger: Stranger, n: int) -> list[Reply]:
    for _ in range(n):
        stranger.connect().socket.close()
        stranger.lines.clear()
    return stranger.say(_GET)


#: A handshake costs some 500 µs of a core (P-256), for about 1,200 bytes that the attacker sends.
_HANDSHAKE_US = {"relay": 2.5}

TLS = [
    Attack("handshakes that are begun and left", half_open, 50, {200}, cpu=_HANDSHAKE_US, memory={"relay": 32 * 2**20}),
    Attack("handshakes all at once", handshakes, 50, {200}, cpu=_HANDSHAKE_US, memory={"relay": 32 * 2**20}),
    Attack("handshakes that come and go", comes_and_goes, 50, {200}, cpu=_HANDSHAKE_US),
    Attack("what is no TLS", no_tls, 20, {0, 400}, cpu=_HANDSHAKE_US),
    Attack("records of one byte", tiny_records, 500, {200}, cpu=_HANDSHAKE_US),
]
