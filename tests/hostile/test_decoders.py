"""Every decoder that strangers reach, at n and at 4 n bytes of the worst input we know: none costs their square.

The processes are not needed for it; what a whole request costs them is in the table of attacks.
"""

from __future__ import annotations

import contextlib
import gzip
import time
from collections.abc import Callable

import pytest

from prefillwatch.engine.exposition import SampleFinder
from prefillwatch.engine.step_report import decode as decode_steps
from prefillwatch.relay.framing import ChunkedScanner
from prefillwatch.relay.http_head import end_of_head, parse_request, parse_response, parse_trailer
from prefillwatch.wire.answer import AnswerReader
from prefillwatch.wire.inject import UsageStripper, rewrite
from prefillwatch.wire.request import read_request
from prefillwatch.wire.routes import endpoint_of

_N = 32 * 1024
_RATIO = 9.0
#: Below this, what else a machine does is larger than what is measured.
_CPU_S = 0.04
#: What a read of a socket brings.
_READ = 16 * 1024

Feed = Callable[[bytes], object]


def chat(body: bytes) -> object:
    return read_request("/v1/chat/completions", "", body)


def cut_off(body: bytes) -> object:
    """The beginning of a larger body."""
    return read_request("/v1/chat/completions", "", body, complete=False)


def encoded(coding: str) -> Feed:
    return lambda body: read_request("/v1/chat/completions", coding, body)


def of_endpoint(path: str) -> Feed:
    return lambda body: read_request(path, "", body)


def answer(kind: str, coding: str = "", step: int = _READ, endpoint: str = "chat_completions") -> Feed:
    def feed(data: bytes) -> None:
        reader = AnswerReader(endpoint, kind, coding)
        for at in range(0, len(data), step):
            reader.feed(data[at : at + step])
        reader.finish()

    return feed


def stripped(data: bytes) -> None:
    stripper = UsageStripper()
    for at in range(0, len(data), _READ):
        stripper.feed(data[at : at + _READ])
    stripper.finish()


def head_in_pieces(data: bytes) -> None:
    buffer, searched = bytearray(), 0
    for at in range(0, len(data), 16):
        buffer += data[at : at + 16]
        if end_of_head(buffer, searched) >= 0:
            return
        searched = len(buffer)


def chunks(step: int) -> Feed:
    def feed(data: bytes) -> None:
        scanner = ChunkedScanner()
        for at in range(0, len(data), step):
            scanner.feed(data[at : at + step])

    return feed


def page(data: bytes) -> object:
    return list(SampleFinder({"vllm:num_requests_running": frozenset({"engine"})}).find(data))


_EVENT = b'data: {"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n'
_MEMBER = gzip.compress(b"", mtime=0)

CASES: dict[str, tuple[Feed, Callable[[int], bytes]]] = {
    "a request head of one line": (parse_request, lambda n: b"GET / HTTP/1.1\r\na:" + b" " * n + b"\x01\r\n\r\n"),
    "a request head of many lines": (parse_request, lambda n: b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * (n // 5) + b"\r\n"),
    "a request head of options": (parse_request, lambda n: b"GET / HTTP/1.1\r\nConnection:" + b"a," * n + b"\r\n\r\n"),
    "an answer's head": (parse_response, lambda n: b"HTTP/1.1 200 OK\r\na:" + b"\t " * n + b"\x01\r\n\r\n"),
    "a trailer": (parse_trailer, lambda n: b"a:" + b" " * n + b"\x01"),
    "a head in pieces": (head_in_pieces, lambda n: b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * (n // 6)),
    "a head of returns in pieces": (head_in_pieces, lambda n: b"\r\na" * (n // 3)),
    "chunks of one byte": (chunks(_READ), lambda n: b"1\r\nx\r\n" * (n // 6)),
    "chunks byte by byte": (chunks(1), lambda n: b"1\r\nx\r\n" * (n // 6)),
    "extensions of chunks": (chunks(_READ), lambda n: b"1;a=b;c=\"d\"\r\nx\r\n" * (n // 16)),
    "trailers": (chunks(100), lambda n: b"0\r\n" + b"a:b\r\n" * (n // 5)),
    "a path": (lambda data: endpoint_of(data.decode("latin-1")), lambda n: b"/v1" * (n // 3)),
    "brackets": (chat, lambda n: b"[" * n),
    "brackets of a body cut off": (cut_off, lambda n: b"[" * n),
    "objects of a body cut off": (cut_off, lambda n: b'{"a":' * (n // 5)),
    "backslashes of a body cut off": (cut_off, lambda n: b'{"messages":[{"content":"' + b"\\" * n),
    "halves of pairs of a body cut off": (cut_off, lambda n: b'{"messages":[{"content":"' + b"\\ud83d" * (n // 6)),
    "quotes of a body cut off": (cut_off, lambda n: b'{"' + b'","' * (n // 3)),
    "empty messages": (chat, lambda n: b'{"messages":[%b{}]}' % (b"{}," * (n // 3))),
    "empty parts": (chat, lambda n: b'{"messages":[{"content":[%b{}]}]}' % (b"{}," * (n // 3))),
    "parts in parts": (chat, lambda n: b'{"messages":[{"content":%b' % (b'[{"content":' * (n // 12))),
    "texts of escapes": (chat, lambda n: b'{"messages":[{"content":"%b"}]}' % (b"\\u0041" * (n // 6))),
    "a number": (chat, lambda n: b'{"max_tokens":%b}' % (b"9" * n)),
    "a number with a fraction": (chat, lambda n: b'{"max_tokens":0.%be9}' % (b"9" * n)),
    "a false member again and again": (chat, lambda n: b"{%b}" % b",".join([b'"n":"x"'] * (n // 8))),
    "every member of the wrong kind": (chat, lambda n: b'{"messages":[%b0]}' % (b'"",' * (n // 3))),
    "token ids": (of_endpoint("/v1/completions"), lambda n: b'{"prompt":[%b1]}' % (b"1," * (n // 2))),
    "prompts": (of_endpoint("/v1/completions"), lambda n: b'{"prompt":[%b""]}' % (b'"",' * (n // 3))),
    "items of a response": (of_endpoint("/v1/responses"), lambda n: b'{"input":[%b{}]}' % (b"{}," * (n // 3))),
    "a system of parts": (of_endpoint("/v1/messages"), lambda n: b'{"system":[%b{}]}' % (b"{}," * (n // 3))),
    "gzip of empty members": (encoded("gzip"), lambda n: _MEMBER * (n // 20)),
    "gzip of gzip": (encoded("gzip, gzip"), lambda n: gzip.compress(_MEMBER * (n // 4), mtime=0)),
    "deflate that is none": (encoded("deflate"), lambda n: b"\x78" * n),
    "br that is none": (encoded("br"), lambda n: b"\x06" * n),
    "zstd of empty frames": (encoded("zstd"), lambda n: bytes.fromhex("28b52ffd2000010000") * (n // 9)),
    "zstd of skipped frames": (encoded("zstd"), lambda n: bytes.fromhex("502a4d1800000000") * (n // 8)),
    "an event without end": (answer("text/event-stream"), lambda n: b"data: " + b"a" * 4 * n),
    "an event without end, in small reads": (answer("text/event-stream", step=16), lambda n: b"data: " + b"a" * n),
    "empty data lines": (answer("text/event-stream"), lambda n: b"data:\n" * (n // 6)),
    "returns": (answer("text/event-stream"), lambda n: b"\r" * n),
    "line ends": (answer("text/event-stream", step=1), lambda n: b"\n\r" * (n // 8)),
    "comments": (answer("text/event-stream"), lambda n: b":\n\n" * (n // 3)),
    "tokens of one choice": (answer("text/event-stream"), lambda n: _EVENT % b"a" * (n // 77)),
    "tokens of many choices": (
        answer("text/event-stream"),
        lambda n: b"".join((_EVENT % b"a").replace(b'"index":0', b'"index":%d' % k) for k in range(n // 77)),
    ),
    "tokens of many answers": (
        answer("text/event-stream"),
        lambda n: b"".join((_EVENT % b"a").replace(b'"id":"c"', b'"id":"%d"' % k) for k in range(n // 77)),
    ),
    "events of brackets": (answer("text/event-stream"), lambda n: b"data: " + b"[" * n + b"\n\n"),
    "an answer of brackets": (answer("application/json"), lambda n: b"[" * n),
    "an answer of choices": (answer("application/json"), lambda n: b'{"choices":[%b{}]}' % (b"{}," * (n // 3))),
    "a compressed answer of empty members": (answer("text/event-stream", "gzip"), lambda n: _MEMBER * (n // 20)),
    "usage to be taken off": (stripped, lambda n: b'data: {"usage":' * (n // 15)),
    "usage to be taken off, blanks": (stripped, lambda n: b'data: {"usage":' + b" " * n + b"1}\n\n"),
    "usage of an event without end": (stripped, lambda n: b"data: " + b"a" * n),
    "options to be put in": (
        lambda body: rewrite(body, "/v1/chat/completions"),
        lambda n: b'{"stream":true,"x":"%b"}' % (b'\\"stream_options\\":' * (n // 19)),
    ),
    "a page of metrics": (page, lambda n: b'\nvllm:num_requests_running{engine="' + b"\\" * n),
    "labels of metrics": (page, lambda n: b"\nvllm:num_requests_running{" + b'a="b",' * (n // 6)),
    "blanks of metrics": (page, lambda n: b"\nvllm:num_requests_running" + b" " * n + b"x"),
    "steps of the engine": (decode_steps, lambda n: b'{"steps":' + b"[" * n),
}  # fmt: skip


def seconds(feed: Feed, data: bytes) -> float:
    """CPU time of this thread, the least of a few tries."""
    least = float("inf")
    for _ in range(3):
        begun = time.thread_time()
        with contextlib.suppress(ValueError):  # refusals are ValueErrors, all of them
            feed(data)
        least = min(least, time.thread_time() - begun)
        if least < _CPU_S / 10:
            break
    return least


@pytest.mark.parametrize("name", CASES)
def test_a_decoder_costs_its_inputs_length(name: str) -> None:
    feed, data = CASES[name]
    small, large = seconds(feed, data(_N)), seconds(feed, data(4 * _N))
    assert large < _CPU_S or large < _RATIO * small, f"{small:.4f} s, and {large:.4f} s for four times as much"
