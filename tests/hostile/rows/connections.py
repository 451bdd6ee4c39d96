"""Attacks by connections: many, idle, slow, broken off, and those that never read."""

from __future__ import annotations

import contextlib
import socket
import time

from tests.hostile.attack import MIB, Attack
from tests.hostile.rows.bodies import chat, post
from tests.hostile.stranger import CLOSED, Reply, Stranger

_GET = b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"
_UPLOAD = b"POST /anything HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
_BODY = chat(b'[{"role":"user","content":"Hello."}]')
#: What the sidecar under these attacks is told: the largest body, and the budget of all of them.
LARGEST, BUDGET = 8 * MIB, 32 * MIB
_BLOCK = MIB // 2
#: How long slow attacks last.
_SLOW_S = 0.7


def idle(stranger: Stranger, n: int) -> list[Reply]:
    lines = [stranger.connect() for _ in range(n)]
    stranger.wait(_SLOW_S)
    return lines[0].send(_GET).replies() if lines[0].is_open else [CLOSED]


def takes_all_places(stranger: Stranger, n: int) -> list[Reply]:
    """More connections than there are descriptors for, then one that wants something."""
    for _ in range(n):
        stranger.connect().send(b"GET /x HTTP/1.1\r\n")
    stranger.wait(2.0)
    return stranger.say(_GET)


def slowly(stranger: Stranger, n: int, start: bytes, byte: bytes) -> list[Reply]:
    """Many connections that each send a byte now and then."""
    lines = [stranger.connect().send(start) for _ in range(n)]
    begun = time.monotonic()
    while time.monotonic() < begun + _SLOW_S:
        for line in lines:
            line.send(byte)
        stranger.wait(0.2)
    return lines[0].send(b"\r\n\r\n").replies() if start.startswith(b"GET") else [CLOSED]


def comes_and_goes(stranger: Stranger, n: int) -> list[Reply]:
    for _ in range(n):
        stranger.connect().close()
        stranger.lines.clear()
    return stranger.say(_GET)


def resets(stranger: Stranger, n: int) -> list[Reply]:
    """In every state that a request can be in."""
    states = [
        b"",
        b"GET /x",
        _GET,
        _UPLOAD % 1000 + b"x" * 10,
        post(_BODY, more=b"X-Script: silent\r\n"),
        post(_BODY, more=b"X-Script: large:10000000\r\n"),
        post(_BODY, more=b"X-Script: beside:1000\r\n"),
    ]
    for number in range(n):
        line = stranger.connect().send(states[number % len(states)])
        if number % 3 == 0:
            stranger.wait(0.005)
        line.reset()
        stranger.lines.clear()
    return stranger.say(_GET)


def never_reads(stranger: Stranger, n: int) -> list[Reply]:
    """Asks for answers of 16 MiB and takes none of them."""
    request = b"GET /x HTTP/1.1\r\nHost: x\r\nX-Script: large:%d\r\n\r\n" % (16 * MIB)
    for _ in range(n):
        stranger.connect(receive_buffer=4096).send(request)
    stranger.wait(_SLOW_S)
    return stranger.say(_GET)


def never_reads_many_answers(stranger: Stranger, n: int) -> list[Reply]:
    """Pipelines requests and takes none of their answers."""
    request = b"GET /x HTTP/1.1\r\nHost: x\r\nX-Script: large:100000\r\n\r\n"
    for _ in range(8):
        line = stranger.connect(receive_buffer=4096)
        line.socket.settimeout(0.2)
        line.send(request * (n // 8))
    stranger.wait(_SLOW_S)
    return stranger.say(_GET)


def uploads(stranger: Stranger, n: int) -> list[Reply]:
    """Bodies that are not quite sent, all held at once, as far as they are taken."""
    lines = [stranger.connect().send(_UPLOAD % LARGEST) for _ in range(n)]
    for _ in range(LARGEST // _BLOCK - 1):
        for line in lines:
            line.socket.settimeout(0.2)
            if line.is_open:
                line.send(b"x" * _BLOCK)
    stranger.wait(_SLOW_S / 2)
    return stranger.fates(lines, 0.5) or [CLOSED]


def prompts(stranger: Stranger, n: int) -> list[Reply]:
    """Prompts that are not quite sent, all held at once: the observer is told of them, too."""
    body = b'{"model":"m","messages":[{"role":"user","content":"' + b"a" * (4 * MIB)
    lines = [stranger.connect() for _ in range(n)]
    for line in lines:
        line.socket.settimeout(0.2)
        line.send(post(body)[:-10])
    stranger.wait(_SLOW_S / 2)
    return stranger.fates(lines, 0.5) or [CLOSED]


def junk(stranger: Stranger, n: int) -> list[Reply]:
    """What is no request of HTTP/1.1 at all."""
    starts = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00" * 300,
        b"GET /\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        b"GET / HTTP/1.1\n\n",
    ]
    return [reply for k in range(n) for reply in stranger.say(starts[k % len(starts)] + b"\r\n\r\n")]


def half_closed(stranger: Stranger, n: int) -> list[Reply]:
    for k in range(n):
        line = stranger.connect().send((b"", b"GET", _GET, _UPLOAD % 10)[k % 4])
        with contextlib.suppress(OSError):
            line.socket.shutdown(socket.SHUT_WR)
    stranger.wait(_SLOW_S / 2)
    return stranger.say(_GET)


#: A connection costs the attacker about 460 bytes on the wire, and us a few system calls and objects.
_CONNECTION_US = {"relay": 1.5, "observer": 1.0}
#: A request of a few hundred bytes on a connection of its own, through both sides and into the books.
REQUEST_US = {"relay": 6.0, "observer": 5.0}

CONNECTIONS = [
    Attack("connections that say nothing", idle, 100, {200}, cpu=_CONNECTION_US),
    Attack(
        "heads of which a byte comes now and then",
        lambda s, n: slowly(s, n, b"GET /x HTTP/1.1\r\nHost: x\r\na: ", b"a"),
        50,
        {200},
        cpu=_CONNECTION_US,
    ),
    Attack(
        "bodies of which a byte comes now and then",
        lambda s, n: slowly(s, n, _UPLOAD % 1000, b"a"),
        50,
        {0},
        cpu=_CONNECTION_US,
    ),
    Attack("connections that come and go", comes_and_goes, 250, {200}, cpu=_CONNECTION_US),
    Attack("resets in every state of a request", resets, 100, {200}, cpu=REQUEST_US),
    Attack("clients that leave one half open", half_closed, 100, {200}, cpu=REQUEST_US),
    Attack("what is no HTTP/1.1", junk, 60, {400, 505, 0}, cpu=REQUEST_US),
    Attack(
        "answers of 16 MiB that nobody reads",
        never_reads,
        10,
        {200},
        cpu={"relay": 100.0},
        memory={"relay": 40 * 256 * 1024},
    ),
    Attack(
        "pipelined answers that nobody reads",
        never_reads_many_answers,
        200,
        {200},
        cpu={"relay": 50.0, "observer": 50.0},
    ),
]

#: The kernel's buffers are its own; what Python adds to a body is less than a tenth.
_HELD = {"relay": BUDGET + 8 * MIB, "observer": 80 * MIB}

UPLOADS = [
    Attack("uploads that are not quite sent", uploads, 3, {503, 408, 413, 0}, memory=_HELD, retry_after=True),
    Attack("prompts that are not quite sent", prompts, 4, {503, 408, 413, 0}, memory=_HELD, retry_after=True),
]

#: What the sidecar under this attack may open: place for some fifty clients.
DESCRIPTORS = 128
PLACES = [
    Attack(
        "heads that are never ended, more than there are descriptors for", takes_all_places, 50, {200}, cpu=REQUEST_US
    )
]
