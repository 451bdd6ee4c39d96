"""Attacks by the body of a request: small ones that are much work to understand."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import brotli
import zstandard
from tests.hostile.attack import MIB, Attack
from tests.hostile.stranger import Reply, Stranger

CHAT = "/v1/chat/completions"
EMPTY_MEMBER = gzip.compress(b"", mtime=0)
_HEAD = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"


def post(body: bytes, encoding: str = "", path: str = CHAT, more: bytes = b"") -> bytes:
    more = more or b"X-Script: short:2\r\n"
    more += b"Content-Encoding: %b\r\n" % encoding.encode() if encoding else b""
    return _HEAD % (path.encode(), more, len(body)) + body


def chat(content: bytes) -> bytes:
    """A request around a value for ``messages``."""
    return b'{"model":"m","stream":true,"messages":%b}' % content


def packed(coding: str, body: bytes) -> bytes:
    return _PACKERS[coding](body)


_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: gzip.compress(body, 9, mtime=0),
    "deflate": lambda body: zlib.compress(body, 9),
    "br": lambda body: brotli.compress(body, quality=5),
    "zstd": lambda body: zstandard.ZstdCompressor(level=3).compress(body),
}


def row(name: str, body: Callable[[int], bytes], n: int, encoding: str = "", **more: object) -> Attack:
    def act(stranger: Stranger, size: int) -> list[Reply]:
        return stranger.say(post(body(size), encoding))

    return Attack(name, act, n, **{"back": {200, 400, 413, 415}, **more})  # type: ignore[arg-type]


def bomb(coding: str, name: str, body: Callable[[int], bytes], n: int) -> Attack:
    """It may cost what all bytes that are ever inflated cost, so what it costs is stated for the request."""
    return row(
        f"{coding} of {name}",
        lambda size: packed(coding, body(size)),
        n,
        coding,
        once=INFLATING,
        memory=INFLATED,
    )


#: Seconds of CPU for a body that is small on the wire and large inside, whatever it is.
INFLATING = {"observer": 0.15}
#: What is inflated, a copy of it, and the structure that is found in it.
INFLATED = {"observer": 32 * MIB}

BODIES = [
    row("brackets without end", lambda n: b"[" * n, 256 * 1024),
    row("objects in objects", lambda n: b'{"a":' * (n // 5), 256 * 1024),
    row("messages that are empty", lambda n: chat(b"[%b{}]" % (b"{}," * (n // 3))), 256 * 1024),
    row(
        "parts of a message that are empty",
        lambda n: chat(b'[{"role":"user","content":[%b{}]}]' % (b"{}," * (n // 3))),
        256 * 1024,
    ),
    row(
        "one message with a long text of escapes",
        lambda n: chat(b'[{"content":"%b"}]' % (b"\\u0041" * (n // 6))),
        256 * 1024,
    ),
    row("a text of lone surrogates", lambda n: chat(b'[{"content":"%b"}]' % (b"\\ud800" * (n // 6))), 256 * 1024),
    row("a number of many digits", lambda n: b'{"model":"m","max_tokens":%b}' % (b"9" * n), 256 * 1024),
    row("numbers of many digits", lambda n: b'{"n":[%b1]}' % ((b"9" * 400 + b",") * (n // 401)), 256 * 1024),
    row("one key again and again", lambda n: b'{%b"model":"m"}' % (b'"model":"m",' * (n // 12)), 256 * 1024),
    row("as many keys as fit", lambda n: b"{%b}" % b",".join(b'"k%d":0' % k for k in range(n // 10)), 256 * 1024),
    row("blanks before a request", lambda n: b" " * n + chat(b"[]"), 256 * 1024),
    row("token ids as a prompt", lambda n: b'{"prompt":[%b1]}' % (b"1," * (n // 2)), 256 * 1024),
    row("a great many prompts", lambda n: b'{"prompt":[%b""]}' % (b'"",' * (n // 3)), 256 * 1024),
    row("prompts in prompts", lambda n: b'{"prompt":[%b[]]}' % (b"[1]," * (n // 4)), 256 * 1024),
    row("tools without end", lambda n: b'{"messages":[],"tools":[%b{}]}' % (b"{}," * (n // 3)), 256 * 1024),
    row("a model that is a long text", lambda n: b'{"model":"%b","messages":[]}' % (b"m" * n), 256 * 1024),
    row("a model that is a list of lists", lambda n: b'{"model":%b}' % (b"[" * (n // 2) + b"]" * (n // 2)), 256 * 1024),
    row("more answers than there are atoms", lambda n: b'{"messages":[],"n":1%b}' % (b"0" * min(n, 18)), 4),
    row("a false gzip", lambda n: b"\x1f\x8b" + b"\x00" * n, 256 * 1024, "gzip"),
    row("gzip of empty members", lambda n: EMPTY_MEMBER * (n // 20), 128 * 1024, "gzip", cpu={"observer": 2.0}),
    row(
        "gzip of gzip of empty members",
        lambda n: packed("gzip", EMPTY_MEMBER * (n // 20)),
        MIB // 2,
        "gzip, gzip",
        once=INFLATING,
    ),
    row(
        "a gzip in a gzip in a gzip",
        lambda n: packed("gzip", packed("gzip", packed("gzip", b" " * n))),
        8 * MIB,
        "gzip, gzip, gzip",
        once=INFLATING,
    ),
    row("zstd of empty frames", lambda n: packed("zstd", b"") * (n // 9), 128 * 1024, "zstd", cpu={"observer": 2.0}),
    row("a list of a thousand codings", lambda n: post(b"{}", ", ".join(["gzip"] * n)), 500),
    *(bomb(coding, "brackets", lambda n: b"[" * n, 2 * MIB) for coding in _PACKERS),
    *(bomb(coding, "empty messages", lambda n: chat(b"[%b{}]" % (b"{}," * (n // 3))), 2 * MIB) for coding in _PACKERS),
    *(
        bomb(coding, "one long text", lambda n: chat(b'[{"content":"%b"}]' % (b"a" * n)), 8 * MIB)
        for coding in _PACKERS
    ),
]
