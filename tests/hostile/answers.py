"""Answers of the server behind the sidecar: that of the stream beside the attack, and those of a hostile server."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator

Script = Callable[[int], AsyncIterator[bytes]]
#: Seconds between two tokens of the stream beside the attack.
BEAT_S = 0.01
_OK = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n"
_STREAM = _OK % b"text/event-stream" + b"Transfer-Encoding: chunked\r\n\r\n"
_PIECE = 16 * 1024
_END = b"0\r\n\r\n"
_DONE = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def token(number: int, sent_ns: int) -> bytes:
    """An event of the stream beside the attack; its text says which token it is and when it was sent."""
    return (
        b'data: {"id":"chatcmpl-beside","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        b'[{"index":0,"delta":{"content":"%d %d"},"finish_reason":null}]}\n\n' % (number, sent_ns)
    )


def event(text: str = "a", *, index: int = 0, model: str = "m", name: str = "c", more: str = "") -> bytes:
    """An event with a token as vLLM writes them. ``more``: further members of the object."""
    choice = {"index": index, "delta": {"content": text}, "finish_reason": None}
    said = {"id": name, "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]}
    return b"data: %b%b\n\n" % (json.dumps(said).encode()[:-1], more.encode() + b"}")


async def plain(body: bytes, content_type: bytes = b"application/json", more: bytes = b"") -> AsyncIterator[bytes]:
    yield _OK % content_type + b"%bContent-Length: %d\r\n\r\n%b" % (more, len(body), body)


async def beside(tokens: int) -> AsyncIterator[bytes]:
    """The stream beside the attack: a token each `BEAT_S`."""
    yield _STREAM
    began = time.monotonic()
    for number in range(tokens):
        await asyncio.sleep(max(0.0, began + number * BEAT_S - time.monotonic()))
        yield chunk(token(number, time.monotonic_ns()))
    yield chunk(_DONE) + _END


async def short(tokens: int) -> AsyncIterator[bytes]:
    """An answer as anybody else gets one."""
    yield _STREAM + b"".join(chunk(event(str(number))) for number in range(max(tokens, 1))) + chunk(_DONE) + _END


async def silent(_: int) -> AsyncIterator[bytes]:
    """A server that has no token yet."""
    await asyncio.sleep(3600)
    yield b""


async def large(size: int) -> AsyncIterator[bytes]:
    """An answer that is no text, of so many bytes."""
    yield _OK % b"application/octet-stream" + b"Content-Length: %d\r\n\r\n" % size
    for piece in _pieces(b"x", size):
        yield piece


async def endless_event(size: int) -> AsyncIterator[bytes]:
    """One event whose line does not end."""
    yield _STREAM + chunk(event()) + chunk(b"data: ")
    for piece in _pieces(b"a", size):
        yield chunk(piece)
    yield chunk(b"\n\n") + _END


async def one_byte_chunks(size: int) -> AsyncIterator[bytes]:
    yield _STREAM
    text = event("abcdefghijklmnopqrstuvwxyz" * 20)
    whole = b"".join(b"1\r\n%c\r\n" % byte for byte in text)
    for _ in range(size // len(text)):
        yield whole
    yield chunk(_DONE) + _END


async def comments(count: int) -> AsyncIterator[bytes]:
    yield _STREAM
    for _ in range(count // 100):
        yield chunk(b": ping\n\n" * 100)
    yield chunk(_DONE) + _END


async def line_ends(size: int) -> AsyncIterator[bytes]:
    yield _STREAM + chunk(event())
    for piece in _pieces(b"\n\r", size):
        yield chunk(piece)
    yield chunk(_DONE) + _END


async def choices(count: int) -> AsyncIterator[bytes]:
    """Each token is of another choice."""
    yield _STREAM
    for first in range(0, count, 50):
        yield b"".join(chunk(event(index=first + k)) for k in range(50))
    yield chunk(_DONE) + _END


async def huge_indices(count: int) -> AsyncIterator[bytes]:
    yield _STREAM
    for first in range(0, count, 50):
        yield b"".join(chunk(event(index=(2**62 + 7 * (first + k)) * (-1) ** k)) for k in range(50))
    yield chunk(_DONE) + _END


async def names(count: int) -> AsyncIterator[bytes]:
    """Each token is of another model and another answer."""
    yield _STREAM
    for first in range(0, count, 50):
        yield b"".join(chunk(event(model=f"model-{first + k}", name=f"id-{first + k}")) for k in range(50))
    yield chunk(_DONE) + _END


async def false_usage(count: int) -> AsyncIterator[bytes]:
    """Token counts that cannot be: huge, negative, falling, no numbers."""
    yield _STREAM
    lies = ("1000000000000000000", "-5", "0", "1e300", '"many"', "[]", "null", "9" * 400, "0.5", "9223372036854775807")
    for number in range(count):
        lie = lies[number % len(lies)]
        usage = f'{{"prompt_tokens":{lie},"completion_tokens":{lie},"total_tokens":{lie}}}'
        yield chunk(event(more=f',"usage":{usage}'))
    yield chunk(_DONE) + _END


async def tool_calls(count: int) -> AsyncIterator[bytes]:
    yield _STREAM
    calls = json.dumps([{"index": k, "function": {"arguments": "x"}} for k in range(count)])
    said = f'{{"id":"c","model":"m","choices":[{{"index":0,"delta":{{"tool_calls":{calls}}}}}]}}'
    for _ in range(4):
        yield chunk(b"data: %b\n\n" % said.encode())
    yield chunk(_DONE) + _END


async def interim(count: int) -> AsyncIterator[bytes]:
    """Heads of informational answers before the answer."""
    for first in range(0, count, 50):
        yield b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * min(50, count - first)
    async for piece in short(1):
        yield piece


async def blank_head(size: int) -> AsyncIterator[bytes]:
    """A head with a line of blanks that ends in a control byte."""
    yield b"HTTP/1.1 200 OK\r\na:" + b" " * size + b"\x01\r\nContent-Length: 0\r\n\r\n"


async def endless_head(size: int) -> AsyncIterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    for piece in _pieces(b"a: b\r\n", size):
        yield piece


async def exploding(size: int) -> AsyncIterator[bytes]:
    """A stream that is compressed, and large when it is not."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = packer.compress(event()) + packer.compress(b"data: " + b"a" * size + b"\n\n") + packer.flush()
    yield _STREAM.replace(b"Transfer", b"Content-Encoding: gzip\r\nTransfer")
    for piece in _cut(packed):
        yield chunk(piece)
    yield _END


async def empty_members(size: int) -> AsyncIterator[bytes]:
    member = gzip.compress(b"", mtime=0)
    yield _STREAM.replace(b"Transfer", b"Content-Encoding: gzip\r\nTransfer")
    for piece in _pieces(member, size):
        yield chunk(piece)
    yield _END


async def deep(size: int) -> AsyncIterator[bytes]:
    """An answer in one piece, of brackets alone."""
    async for piece in plain(b"[" * size):
        yield piece


async def wide(size: int) -> AsyncIterator[bytes]:
    """An answer in one piece with a great many choices."""
    choice = b'{"index":0,"message":{"content":"a"},"finish_reason":"stop"},'
    body = b'{"id":"c","model":"m","choices":[%b]}' % (choice * (size // len(choice)))[:-1]
    async for piece in plain(body):
        yield piece


def _pieces(unit: bytes, size: int) -> Iterator[bytes]:
    """``unit`` again and again, up to so many bytes, in pieces as a socket takes them."""
    whole = unit * (_PIECE // len(unit))
    for at in range(0, size, len(whole)):
        yield whole[: size - at]


def _cut(data: bytes) -> Iterator[bytes]:
    return (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))


SCRIPTS: dict[str, Script] = {
    script.__name__: script
    for script in (
        beside, short, silent, large, endless_event, one_byte_chunks, comments, line_ends, choices, huge_indices, names,
        false_usage, tool_calls, interim, blank_head, endless_head, exploding, empty_members, deep, wide,
    )
}  # fmt: skip
