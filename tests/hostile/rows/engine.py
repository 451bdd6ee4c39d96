"""Attacks on the socket for the plugin inside vLLM, to which only processes of the same user can connect."""

from __future__ import annotations

import contextlib
import json
import socket

from tests.hostile.attack import Attack
from tests.hostile.stranger import Reply, Stranger


def packets(stranger: Stranger, n: int, packet: bytes) -> list[Reply]:
    """Sends it again and again to the engine socket, then asks for health."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.settimeout(5.0)
        link.connect(stranger.engine)
        with contextlib.suppress(OSError):
            for _ in range(n):
                link.send(packet)
                stranger.link.pass_on(len(packet), 1)
    return stranger.say(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")


def links(stranger: Stranger, n: int) -> list[Reply]:
    with contextlib.ExitStack() as opened:
        for _ in range(n):
            link = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            link.settimeout(1.0)
            stranger.link.pass_on(0, 1)
            with contextlib.suppress(OSError):
                link.connect(stranger.engine)
    return stranger.say(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")


def _step(**fields: object) -> bytes:
    return json.dumps({"steps": [{"engine": 0, "end_ns": 1, "taken_ns": 1, **fields}], "dropped": 0}).encode()


_COSTS = {"observer": 3.0, "supervisor": 3.0}

ENGINE = [
    Attack("packets that are none", lambda s, n: packets(s, n, b"\xff" * 300), 250, {200}, "admin", cpu=_COSTS),
    Attack(
        "packets with counts beyond reason",
        lambda s, n: packets(s, n, _step(prefill_tokens=2**63, decode_tokens=2**80)),
        250,
        {200},
        "admin",
        cpu=_COSTS,
    ),
    Attack(
        "packets with times beyond reason",
        lambda s, n: packets(s, n, _step(end_ns=2**62, taken_ns=-(2**62), duration_ns=2**62)),
        250,
        {200},
        "admin",
        cpu=_COSTS,
    ),
    Attack("a packet of brackets", lambda s, n: packets(s, n, b"[" * 100_000), 10, {200}, "admin", cpu=_COSTS),
    Attack("links without end", links, 50, {200}, "admin", cpu=_COSTS),
]
