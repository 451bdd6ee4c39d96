"""A stranger with a slow link and all the attacks of the table: what can 1 Mbit/s do?"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable

from tests.hostile.attack import Attack
from tests.hostile.rows.bodies import EMPTY_MEMBER, chat, packed, post
from tests.hostile.stranger import CLOSED, Link, Reply, Stranger

BITS_PER_SECOND = 1_000_000
_CHUNKED = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
_TINY = b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"
_BODY = chat(b'[{"role":"user","content":"Hello."}]')
_MIB = 2**20


class SharedLink(Link):
    """One slow link for several connections at once."""

    def __init__(self, bits_per_second: float) -> None:
        super().__init__(bits_per_second)
        self._lock = threading.Lock()

    def pass_on(self, size: int, packets: int) -> None:
        with self._lock:
            super().pass_on(size, packets)


def _bursts() -> list[tuple[str, bytes, int]]:
    """Bytes for one connection each, and how many answers to wait for."""
    brackets, empty = b"[" * (8 * _MIB), chat(b"[%b{}]" % (b"{}," * _MIB))
    return [
        ("blanks", b"GET / HTTP/1.1\r\nHost: x\r\na:" + b" " * 60_000 + b"\x01\r\n\r\n", 1),
        ("brackets", post(packed("gzip", brackets), "gzip"), 1),
        ("brackets", post(packed("zstd", brackets), "zstd"), 1),
        ("brackets", post(packed("br", brackets), "br"), 1),
        ("messages", post(packed("gzip", empty), "gzip"), 1),
        ("messages", post(packed("deflate", empty), "deflate"), 1),
        ("members", post(packed("gzip", EMPTY_MEMBER * (4 * _MIB // 20)), "gzip, gzip"), 1),
        ("one-byte chunks", _CHUNKED + b"1\r\nx\r\n" * 14_000, 1),
        ("pipelined", _TINY * 400, 400),
        ("pipelined chats", post(_BODY) * 100, 100),
        ("plain brackets", post(brackets[:60_000]), 1),
        ("plain objects", post(b'{"a":' * 12_000), 1),
        ("large answers", b"GET /x HTTP/1.1\r\nHost: x\r\nX-Script: large:1000000\r\n\r\n" * 20, 0),
        ("resets", post(_BODY, more=b"X-Script: beside:1000\r\n"), 0),
        ("a head not ended", b"GET / HTTP/1.1\r\nHost: x\r\na: ", 0),
        ("a body not ended", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 60000000\r\n\r\n" + b"x" * 20_000, 0),
        ("many choices", post(_BODY, more=b"X-Script: choices:200\r\n"), 0),
        ("an event without end", post(_BODY, more=b"X-Script: endless_event:200000\r\n"), 0),
        ("nothing", b"", 0),
    ]


def mix(stranger: Stranger, seconds: int) -> list[Reply]:
    """All at once and at random, over one slow link, from six hands; those that wait for nothing are left open."""
    stranger.link = SharedLink(BITS_PER_SECOND)
    bursts, end = _bursts(), time.monotonic() + seconds
    threads = [threading.Thread(target=_hand, args=(stranger, bursts, seed, end)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return stranger.say(_TINY)


def _hand(stranger: Stranger, bursts: list[tuple[str, bytes, int]], seed: int, end: float) -> None:
    chance = random.Random(seed)
    while time.monotonic() < end:
        _, data, answers = chance.choice(bursts)
        line = stranger.connect()
        line.send(data)
        if answers:
            line.replies(answers, patience_s=max(0.1, end - time.monotonic()))
            line.close()
        elif chance.random() < 0.3:
            line.reset()


def flood(data: bytes, answers: int, hands: int = 40) -> Callable[[Stranger, int], list[Reply]]:
    """One kind alone, on many connections at once that all become ready in the same turn."""

    def act(stranger: Stranger, seconds: int) -> list[Reply]:
        stranger.link = SharedLink(BITS_PER_SECOND)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            lines = [stranger.connect() for _ in range(hands)]
            for line in lines:
                with contextlib.suppress(OSError):
                    line.send(data)
            for line in lines:
                line.replies(answers, patience_s=2.0)
                line.close()
            stranger.lines.clear()
        return stranger.say(_TINY) or [CLOSED]

    return act


#: A second of 1 Mbit/s is 125,000 bytes: so this is at most three quarters of a core, of the relay and of the observer.
_SHARE_US = {"relay": 6.0, "observer": 6.0}

SLOW_LINK = [
    Attack(
        "the worst mix of all attacks at 1 Mbit/s",
        mix,
        3,
        {200},
        cpu=_SHARE_US,
        memory={"relay": 24 * _MIB, "observer": 40 * _MIB},
    ),
    Attack("tiny requests on forty connections at 1 Mbit/s", flood(_TINY * 20, 20), 1, {200}, cpu=_SHARE_US),
    Attack(
        "chats on forty connections at 1 Mbit/s",
        flood(post(_BODY) * 4, 4),
        1,
        {200},
        cpu=_SHARE_US,
        memory={"observer": 16 * _MIB},
    ),
]
