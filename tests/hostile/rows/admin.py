"""Attacks on the address of the operator."""

from __future__ import annotations

import contextlib

from tests.hostile.attack import MIB, Attack
from tests.hostile.rows.connections import slowly
from tests.hostile.stranger import CLOSED, Reply, Stranger

_HOST = b" HTTP/1.1\r\nHost: localhost\r\n"
_HEALTH = b"GET /healthz" + _HOST + b"\r\n"
_METRICS = b"GET /metrics" + _HOST + b"Connection: close\r\n\r\n"


def silent(stranger: Stranger, n: int) -> list[Reply]:
    lines = [stranger.connect() for _ in range(n)]
    stranger.wait(1.0)
    return lines[-1].send(_HEALTH).replies(patience_s=5.0) if lines[-1].is_open else [CLOSED]


def come_and_go(stranger: Stranger, n: int) -> list[Reply]:
    for _ in range(n):
        stranger.connect().close()
    return stranger.say(_HEALTH)


def no_end(stranger: Stranger, n: int) -> list[Reply]:
    line = stranger.connect()
    line.socket.settimeout(5.0)
    return line.send(b"GET /healthz" + _HOST + b"ab:cd\r\n" * (n // 7)).replies(patience_s=2.0)


def watchers(stranger: Stranger, n: int) -> list[Reply]:
    """People at the live page who do not read."""
    lines = [stranger.connect(receive_buffer=4096).send(b"GET /api/live" + _HOST + b"\r\n") for _ in range(n)]
    stranger.wait(1.5)
    return [line.begun(0.5) for line in lines]


def endless_body(stranger: Stranger, n: int) -> list[Reply]:
    line = stranger.connect()
    line.socket.settimeout(2.0)
    line.send(b"POST /api/flight" + _HOST + b"Content-Length: %d\r\n\r\n" % (2 * n))
    with contextlib.suppress(TimeoutError):
        line.send(b"x" * n)
    return line.replies(patience_s=2.0)


_REBOUND = b" HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"

ADMIN = [
    Attack("silent connections", silent, 128, {200, 503, 0}, at="admin", cpu={"observer": 3.0, "supervisor": 3.0}),
    Attack("a head without end", no_end, MIB, {431, 400, 408, 0}, at="admin"),
    Attack(
        "heads of which a byte comes now and then",
        lambda s, n: slowly(s, n, b"GET /healthz" + _HOST + b"a: ", b"a"),
        32,
        {200, 503, 0},
        at="admin",
        cpu={"observer": 3.0, "supervisor": 3.0},
    ),
    Attack(
        "a head that comes byte by byte",
        lambda s, n: s.say(b"GET /healthz" + _HOST + b"a: " + b"b" * n + b"\r\n\r\n", piece=1),
        1_000,
        {200, 408},
        at="admin",
    ),
    Attack(
        "as many headers as fit",
        lambda s, n: s.say(b"GET /healthz" + _HOST + b"a:b\r\n" * n + b"\r\n"),
        2_000,
        {200, 400, 431, 0},
        at="admin",
    ),
    Attack(
        "many scrapes at once",
        lambda s, n: s.all_at_once([_METRICS] * n),
        8,
        {200, 503},
        at="admin",
        cpu={"observer": 15.0, "supervisor": 5.0},
    ),
    Attack(
        "pipelined requests",
        lambda s, n: s.say(_HEALTH * n, answers=n),
        100,
        {200, 503, 0},
        at="admin",
        cpu={"observer": 15.0, "supervisor": 5.0},
    ),
    Attack("watchers of the live page who do not read", watchers, 8, {200, 503, 0}, at="admin", cpu={"observer": 30.0}),
    Attack("a body without end", endless_body, 4 * MIB, {401, 403, 404, 405, 409, 411, 413, 0, 400}, at="admin"),
    Attack(
        "recordings asked for again and again",
        lambda s, n: s.all_at_once(
            [b"POST /api/flight" + _HOST + b"Connection: close\r\nContent-Length: 0\r\n\r\n"] * n
        ),
        16,
        {201, 409, 429, 503},
        at="admin",
        cpu={"observer": 15.0, "supervisor": 5.0},
    ),
    Attack(
        "a page of another site whose name was bent to us",
        lambda s, n: s.all_at_once([b"GET /api/state" + _REBOUND, b"GET /metrics" + _REBOUND] * n),
        4,
        {421},
        at="admin",
        cpu={"observer": 15.0, "supervisor": 5.0},
    ),
    Attack(
        "connections that come and go",
        come_and_go,
        100,
        {200},
        at="admin",
        cpu={"observer": 3.0, "supervisor": 3.0},
    ),
    Attack(
        "paths without end",
        lambda s, n: s.say(b"GET /" + b"%ff/" * (n // 4) + _HOST + b"\r\n"),
        15_000,
        {400, 404, 414, 431},
        at="admin",
    ),
    Attack(
        "numbers without end",
        lambda s, n: s.say(b"GET /api/incidents?limit=" + b"9" * n + _HOST + b"\r\n"),
        15_000,
        {400, 414, 431},
        at="admin",
    ),
]
