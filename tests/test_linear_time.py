"""What strangers' bytes reach takes time in proportion to them: every pattern and every decoder of the data path.

Time is the CPU's, the least of several runs, and only ever held against the same code on a quarter of the input.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import gzip
import importlib
import inspect
import itertools
import pkgutil
import re
import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

import prefillwatch.relay
import prefillwatch.wire
from prefillwatch.relay import forwarding, http_head, observed_head, request_body, upstream
from prefillwatch.relay.answer import Answer
from prefillwatch.relay.framing import ChunkedScanner, LengthScanner
from prefillwatch.wire import fingerprint, inject, partial, routes, sender
from prefillwatch.wire.answer import AnswerReader
from prefillwatch.wire.inflate import InflateError, inflater_for
from prefillwatch.wire.ndjson import LineParser
from prefillwatch.wire.request import read_request
from prefillwatch.wire.sse import EventParser
from prefillwatch.wire.structure import has_more_marks

if sys.version_info >= (3, 11):
    from re import _constants as sre
    from re import _parser as sre_parse
else:
    import sre_constants as sre
    import sre_parse

#: Twice what linear work takes for four times the input, and half of what quadratic work takes.
MOST = 8.0
#: Work that is over sooner than this cannot be told from noise; at the sizes below it is also no harm.
NOISE_S = 0.002


def cpu_seconds(work: Callable[[], object], runs: int = 3) -> float:
    best = float("inf")
    for _ in range(runs):
        start = time.thread_time()
        work()
        best = min(best, time.thread_time() - start)
        if best > 1.0:
            break
    return best


def is_slow(work: Callable[[], object]) -> bool:
    """Once may be a collection of garbage, or a page that was not there; each time is the work."""
    return cpu_seconds(work, 1) > NOISE_S and cpu_seconds(work) > NOISE_S


def grows_too_fast(work: Callable[[int], Callable[[], object]], size: int) -> bool:
    """Whether four times the size takes many times as long, whatever else the machine is doing."""
    for _ in range(3):
        gc.collect()
        large = cpu_seconds(work(4 * size))
        if large < NOISE_S or large < MOST * cpu_seconds(work(size)):
            return False
    return True


# Regular expressions
# ---------------------------------------------------------------------------------------------------------------------


def modules() -> list[ModuleType]:
    return [
        importlib.import_module(found.name)
        for package in (prefillwatch.relay, prefillwatch.wire)
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
        if not found.ispkg and not found.name.endswith("__main__")
    ]


METHODS = {"match", "fullmatch", "search", "sub", "split", "findall", "finditer"}


def patterns() -> dict[str, tuple[re.Pattern[Any], set[str]]]:
    """Every compiled pattern of a module, with the methods by which that module uses it: ``match`` for one that it
    hands on as a value."""
    found = {}
    for module in modules():
        tree = ast.parse(inspect.getsource(module))
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                attributes = [
                    node
                    for node in ast.walk(tree)
                    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
                ]
                uses = {node.attr for node in attributes} & METHODS
                named = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
                if sum(isinstance(node.ctx, ast.Load) for node in named) > len(attributes):
                    uses.add("match")
                found[f"{module.__name__.removeprefix('prefillwatch.')}.{name}"] = (value, uses)
    return found


PATTERNS = patterns()


@pytest.mark.parametrize("module", modules(), ids=lambda module: module.__name__)
def test_patterns_are_made_once_and_kept_where_they_are_found(module: ModuleType) -> None:
    tree = ast.parse(inspect.getsource(module))
    used_in_functions = {
        node.attr
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "re"
    }
    assert not used_in_functions & {"compile", *METHODS}


@pytest.mark.parametrize("name", PATTERNS)
def test_a_regular_expression_is_linear(name: str) -> None:
    pattern, uses = PATTERNS[name]
    assert uses, "nobody uses it"
    for method in uses:
        match = getattr(pattern, method)
        run = match
        if method == "finditer":
            run = lambda text, match=match: sum(1 for _ in match(text))  # noqa: E731
        elif method == "sub":
            run = lambda text, match=match: match(text[:0], text)  # noqa: E731
        for before, pump, after in hostile_texts(pattern):

            def work(count: int, before: Any = before, pump: Any = pump, after: Any = after, run: Any = run) -> Any:
                text = before + pump * count + after
                return lambda: run(text)

            slow_at = next((count for count in COUNTS if is_slow(work(count))), None)
            if slow_at is not None:
                assert slow_at >= 1000, f"{method} of {before!r} + {pump!r} * {slow_at} + {after!r}"
                assert not grows_too_fast(work, slow_at), f"{method} of {before!r} + {pump!r} * {slow_at} + {after!r}"


# Few at first: where something is tried in every possible way, a few more take for ever.
COUNTS = [*range(8, 30, 2), 100, 1000, 4000]


def hostile_texts(pattern: re.Pattern[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Ways to reach each repetition of a pattern, what may go round in it, and an end that does not match."""
    tree = sre_parse.parse(pattern.pattern, pattern.flags & ~re.UNICODE)
    characters = sorted(set(alphabet(tree)))
    singles = [bytes([character]) for character in characters]
    odd = [b"", b"\x01", b"x", b'"', b"\n"]

    def as_text(data: bytes) -> bytes | str:
        return data.decode("latin-1") if isinstance(pattern.pattern, str) else data

    for before, body in sorted(set(repetitions(tree, b""))):
        for pump in sorted({*singles, body, body + b" "} - {b""}):
            for after in odd:
                yield as_text(before), as_text(pump), as_text(after)


def alphabet(tree: Any) -> Iterator[int]:
    """The characters that a pattern speaks of, and one of each kind that it does not."""
    yield from b" \tx\\\xff"
    for node in flat(tree):
        kind, value = node
        if kind in (sre.LITERAL, sre.NOT_LITERAL):
            yield value
        elif kind is sre.RANGE:
            yield from value


def flat(tree: Any) -> Iterator[tuple[Any, Any]]:
    for kind, value in tree:
        yield kind, value
        if kind is sre.IN:
            yield from flat(value)
        for inner in subpatterns(kind, value):
            yield from flat(inner)


def subpatterns(kind: Any, value: Any) -> list[Any]:
    if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        return [value[2]]
    if kind is sre.SUBPATTERN:
        return [value[-1]]
    if kind is sre.BRANCH:
        return list(value[1])
    if kind is sre.ASSERT:
        return [value[1]]
    return []


def repetitions(tree: Any, before: bytes) -> Iterator[tuple[bytes, bytes]]:
    """What leads to each repetition, and one round of it."""
    for kind, value in tree:
        for inner in subpatterns(kind, value):
            yield from repetitions(inner, before)
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            yield before, shortest(value[2])
            yield before + shortest(value[2]), shortest(value[2])
        before += shortest([(kind, value)])


def shortest(tree: Any) -> bytes:
    """A short text that matches."""
    text = b""
    for kind, value in tree:
        if kind is sre.LITERAL:
            text += bytes([value])
        elif kind is sre.NOT_LITERAL:
            text += b"x" if value != ord("x") else b"y"
        elif kind is sre.IN:
            text += bytes([one_of(value)])
        elif kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            text += shortest(value[2]) * value[0]
        elif kind is sre.SUBPATTERN:
            text += shortest(value[-1])
        elif kind is sre.BRANCH:
            text += shortest(value[1][0])
    return text


def one_of(members: Any) -> int:
    negated = members[0][0] is sre.NEGATE
    named = set(itertools.chain.from_iterable(alternatives(kind, value) for kind, value in members))
    return next(character for character in b"x1 ;!" + bytes(range(256)) if (character in named) is not negated)


def alternatives(kind: Any, value: Any) -> Iterator[int]:
    if kind is sre.LITERAL:
        yield value
    elif kind is sre.RANGE:
        yield from range(value[0], value[1] + 1)


# Decoders
# ---------------------------------------------------------------------------------------------------------------------

GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
EVENTS = "text/event-stream"
REFUSALS = (ValueError, InflateError)


def tried(function: Callable[..., object], *arguments: object) -> Callable[[], None]:
    """The work of a call that may refuse what it gets."""

    def work() -> None:
        with contextlib.suppress(*REFUSALS):
            function(*arguments)

    return work


def by_pieces(make: Callable[[], Callable[[bytes], object]], data: bytes, piece: int) -> Callable[[], None]:
    def work() -> None:
        feed = make()
        with contextlib.suppress(*REFUSALS):
            for start in range(0, len(data), piece):
                feed(data[start : start + piece])

    return work


def growing_head(data: bytes) -> Callable[[], None]:
    """A head that comes byte by byte, as the relay reads it."""

    def work() -> None:
        buffer, searched = bytearray(), 0
        with contextlib.suppress(*REFUSALS):
            for byte in data:
                buffer.append(byte)
                http_head.end_of_head(buffer, searched)
                searched = len(buffer)

    return work


def body_of(framing: bytes) -> Callable[[], Callable[[bytes], object]]:
    request = http_head.parse_request(b"POST / HTTP/1.1\r\nHost: a\r\n" + framing + b"\r\n")
    return lambda: request_body.RequestBody(request, 64 * 2**20).feed


def answer_of(head: bytes) -> Callable[[], Callable[[bytes], object]]:
    request = http_head.parse_request(GET + b"\r\n")
    response = http_head.parse_response(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
    return lambda: Answer(request, response, observed=True, keep=True, stripper=inject.UsageStripper()).feed


def request_with(**parts: bytes) -> http_head.Request:
    target, line = parts.get("target", b"/"), parts.get("line", b"X: y")
    return http_head.parse_request(b"GET %b HTTP/1.1\r\nHost: a\r\n%b\r\n\r\n" % (target, line))


def chat(body: bytes, **more: Any) -> Callable[[], object]:
    return lambda: read_request("/v1/chat/completions", more.get("encoding", ""), body)


def answer_reader(encoding: str = "", endpoint: str = "chat_completions") -> Callable[[], Callable[[bytes], object]]:
    return lambda: AnswerReader(endpoint, EVENTS, encoding).feed


#: What is read, by whom, and the smaller of the two sizes; the larger one is four times that.
DECODERS: dict[str, tuple[Callable[[int], Callable[[], object]], int]] = {
    "http_head: blanks before a byte that nobody may send": (
        lambda n: tried(http_head.parse_request, GET + b"a:" + b" " * n + b"\x01\r\n\r\n"), 16_000),
    "http_head: the same from upstream": (
        lambda n: tried(http_head.parse_response, b"HTTP/1.1 200 OK\r\na:" + b" \t" * n + b"\x01\r\n\r\n"), 64_000),
    "http_head: the same in a trailer": (
        lambda n: tried(http_head.parse_trailer, b"a:" + b" " * n + b"\x01"), 16_000),
    "http_head: a request line of blanks": (
        lambda n: tried(http_head.parse_request, b"GET " + b" " * n + b"HTTP/1.1\r\n\r\n"), 16_000),
    "http_head: a target without end": (
        lambda n: tried(http_head.parse_request, b"GET /" + b"/" * n + b"\x01 HTTP/1.1\r\n\r\n"), 16_000),
    "http_head: a status line of blanks": (
        lambda n: tried(http_head.parse_response, b"HTTP/1.1 200 " + b" " * n + b"\x01\r\n\r\n"), 64_000),
    "http_head: many headers": (
        lambda n: tried(http_head.parse_request, GET + b"a:\r\n" * n + b"\r\n"), 4000),
    "http_head: options of Connection": (
        lambda n: tried(http_head.parse_request, GET + b"Connection: " + b"a," * n + b"\r\n\r\n"), 8000),
    "http_head: many Connection headers": (
        lambda n: tried(http_head.parse_request, GET + b"Connection:" + b",\r\nConnection:" * n + b"\r\n\r\n"), 64),
    "http_head: expectations": (
        lambda n: tried(http_head.parse_request, GET + b"Expect: " + b"100-continue," * n + b"\r\n\r\n"), 1200),
    "http_head: a length of zeros": (
        lambda n: tried(http_head.parse_request, GET + b"Content-Length: " + b"0" * n + b"\r\n\r\n"), 16_000),
    "http_head: a host of dots": (
        lambda n: tried(http_head.parse_request, b"GET / HTTP/1.1\r\nHost: " + b".%00" * n + b":/\r\n\r\n"), 4000),
    "http_head: a target in absolute form": (
        lambda n: tried(http_head.parse_request, b"GET http://" + b"a:" * n + b"@ HTTP/1.1\r\nHost: a\r\n\r\n"), 8000),
    "http_head: a head byte by byte": (lambda n: growing_head(GET + b"a: " + b"x" * n), 16_000),
    "http_head: blanks byte by byte": (lambda n: growing_head(b"\r" + b" " * n), 16_000),
    "http_head: lines byte by byte": (lambda n: growing_head(GET + b"a:\r\n" * n), 4000),
    "forwarding: a request of many headers": (
        lambda n: lambda: forwarding.request_head(request_with(line=b"\r\n".join([b"a: b"] * n)), b"u", keep_host=True),
        60),
    "observed_head: a path without end": (
        lambda n: lambda: observed_head.observed_request(request_with(target=b"/a" * n), 1), 8000),
    "observed_head: a header without end": (
        lambda n: lambda: observed_head.observed_request(request_with(line=b"x-slo-ttft-ms: 1." + b"3" * n), 1),
        16_000),
    "observed_head: a trace without end, and thousands of them": (
        lambda n: lambda: observed_head.observed_request(
            request_with(line=b"traceparent: cc-" + b"-" * n + b"\r\ntraceparent: a" * 60), 1),
        16_000),
    "sender: a name without end": (
        lambda n: lambda: sender.TenantIds("key")(b"\xff" * n), 16_000),
    "sender: a priority without end": (
        lambda n: lambda: sender.priority_of(b"1" * n), 16_000),
    "upstream: Keep-Alive without end": (
        lambda n: lambda: upstream._announced_limit(b"a=1," * n), 16_000),
    "framing: one-byte chunks": (
        lambda n: tried(lambda data: ChunkedScanner().feed(data), b"1\r\nx\r\n" * n), 8000),
    "framing: one-byte chunks byte by byte": (
        lambda n: by_pieces(lambda: ChunkedScanner().feed, b"1\r\nx\r\n" * n, 1), 1000),
    "framing: a size line byte by byte": (
        lambda n: by_pieces(lambda: ChunkedScanner().feed, b"1;a=" + b"x" * n, 1), 1000),
    "framing: a size line of blanks": (
        lambda n: tried(lambda data: ChunkedScanner().feed(data), b"1" + b" " * n + b"\r\n"), 1000),
    "framing: extensions": (
        lambda n: tried(lambda data: ChunkedScanner().feed(data), b"1" + b' ; a = "\\x"' * n + b"!?\r\n"), 80),
    "framing: trailers": (
        lambda n: tried(lambda data: ChunkedScanner().feed(data), b"0\r\n" + b"a:\r\n" * n), 1000),
    "framing: a trailer byte by byte": (
        lambda n: by_pieces(lambda: ChunkedScanner().feed, b"0\r\na:" + b" " * n, 1), 1000),
    "framing: a body byte by byte": (
        lambda n: by_pieces(lambda: LengthScanner(n).feed, b"x" * n, 1), 16_000),
    "request_body: byte by byte": (lambda n: by_pieces(body_of(b"Content-Length: %d\r\n" % n), b"x" * n, 1), 50_000),
    "request_body: small chunks": (
        lambda n: by_pieces(
            body_of(b"Transfer-Encoding: chunked\r\n"), (b"40\r\n" + b"x" * 64 + b"\r\n") * n, 65536), 5000),
    "answer: one-byte chunks": (
        lambda n: by_pieces(answer_of(b"Transfer-Encoding: chunked\r\n"), b"1\r\nx\r\n" * n, 65536), 8000),
    "answer: one-byte chunks of which something is stripped": (
        lambda n: by_pieces(
            answer_of(b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"), b"1\r\n:\r\n" * n, 65536),
        8000),
    "inject: a request of blanks": (
        lambda n: lambda: inject.rewrite(b'{"stream":true,"stream_options"' + b" " * n + b":null}", "/v1/completions"),
        200_000),
    "inject: many null options": (
        lambda n: lambda: inject.rewrite(
            b'{"stream":true,"stream_options":null,"a":[' + b'{"stream_options":null},' * n + b"1]}",
            "/v1/completions"),
        10_000),
    "inject: an event byte by byte": (
        lambda n: by_pieces(lambda: inject.UsageStripper().feed, b"data: " + b"x" * n, 1), 20_000),
    "inject: carriage returns": (
        lambda n: by_pieces(lambda: inject.UsageStripper().feed, b"data:\r" + b"\n\r" * n + b"x", 1000), 20_000),
    "inject: usage in every place": (
        lambda n: lambda: inject.strip_usage(
            b'data: {"usage":null,"a":[' + b'{"x":1,"usage":null},' * n + b'1],"z":"\\u0041"}\n\n'), 2500),
    "partial, request: brackets without end": (lambda n: chat(b'{"messages":' + b"[" * n), 30_000),
    "partial, request: braces without end": (lambda n: chat(b'{"a":' * n), 20_000),
    "partial, request: many messages": (lambda n: chat(b'{"messages":[' + b"{}," * n), 5000),
    "partial, request: many strings": (lambda n: chat(b'{"messages":["' + b'a","' * n), 5000),
    "partial, request: backslashes": (lambda n: chat(b'{"prompt":"' + b"\\\\" * n), 10_000),
    "partial, request: half of a pair": (lambda n: chat(b'{"prompt":"' + b"\\ud83d" * n), 20_000),
    "partial: quotes": (lambda n: lambda: partial.close(b'"' * n), 20_000),
    "request, tolerant: contents inside each other": (
        lambda n: chat(b'{"messages":[{"content":' + b'[{"content":' * n + b"1" + b"}]" * n + b"}]}"), 5000),
    "request, tolerant: many of the wrong kind": (
        lambda n: chat(b'{"messages":[' + b'{"role":1},' * n + b"{}]}"), 250),
    "request, tolerant: bytes that are no text": (lambda n: chat(b'{"messages":"' + b"\xff" * n + b'"}'), 200_000),
    "request: the same member again and again": (lambda n: chat(b"{" + b'"n":1,' * n + b'"n":1}'), 50_000),
    "request: a number without end": (lambda n: chat(b'{"n":' + b"1" * n + b"}"), 4000),
    "fingerprint: a text": (lambda n: lambda: fingerprint.text_fingerprint("x" * n), 30_000),
    "routes: slashes": (lambda n: lambda: routes.endpoint_of("/" * n), 100_000),
    "routes: slashes and blanks": (lambda n: lambda: routes.endpoint_of("/ " * n + "?" * n), 50_000),
    "sse: a line byte by byte": (lambda n: by_pieces(lambda: EventParser().feed, b"data: " + b"x" * n, 1), 20_000),
    "sse: an event of many lines": (lambda n: by_pieces(lambda: EventParser().feed, b"data:\n" * n, 1000), 20_000),
    "sse: line ends": (lambda n: by_pieces(lambda: EventParser().feed, b"\r\n\r" * n, 1000), 20_000),
    "answer, chat: events byte by byte": (
        lambda n: by_pieces(answer_reader(), b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n' * n, 1), 200),
    "answer, completions: noise": (
        lambda n: by_pieces(answer_reader(endpoint="completions"), b'data: {"choices":[{"text":\n\n' * n, 4096), 1000),
    "answer, responses: noise": (
        lambda n: by_pieces(answer_reader(endpoint="responses"), b'data: {"type":"x","delta":"y"}\n\n' * n, 4096),
        1000),
    "answer, messages: noise": (
        lambda n: by_pieces(
            answer_reader(endpoint="messages"), b'data: {"type":"x","delta":{"text":"y"}}\n\n' * n, 4096),
        1000),
    "answer, native: noise": (
        lambda n: by_pieces(answer_reader(endpoint="native"), b'data: {"text":"y","meta_info":{}}\n\n' * n, 4096),
        1000),
    "answer, cohere: noise": (
        lambda n: by_pieces(answer_reader(endpoint="cohere_chat"), b'data: {"type":"x","delta":{}}\n\n' * n, 4096),
        1000),
    "ndjson: a line byte by byte": (lambda n: by_pieces(lambda: LineParser().feed, b"x" * n, 1), 20_000),
    "ndjson: line ends": (lambda n: by_pieces(lambda: LineParser().feed, b"\n" * n, 1000), 20_000),
    "answer, template, facts: a new shape every time": (
        lambda n: by_pieces(
            answer_reader(),
            b"".join(b'data: {"%d":1,"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n' % i for i in range(n)),
            4096),
        1000),
    "structure: marks": (lambda n: lambda: has_more_marks(b"[,{" * n, 1000), 300_000),
    "structure: texts": (lambda n: lambda: has_more_marks(b'[","' * n, 1000), 300_000),
    "structure: escapes": (lambda n: lambda: has_more_marks(b',"\\"' * n, 1000), 300_000),
    "inflate, request: gzip of empty members": (lambda n: chat(gzip.compress(b"") * n, encoding="gzip"), 5000),
    "inflate, request: the same, wrapped once more": (
        lambda n: chat(gzip.compress(gzip.compress(b"") * n), encoding="gzip, gzip"),
        20_000,
    ),
    "inflate, request: gzip of brackets": (lambda n: chat(gzip.compress(b"[" * n), encoding="gzip"), 100_000),
    "inflate, answer: gzip of empty members": (
        lambda n: by_pieces(answer_reader("gzip"), gzip.compress(b"") * n, 65536),
        5000,
    ),
    "inflate: noise": (
        lambda n: tried(lambda data: inflater_for("deflate", 2**25).feed(data), b"\x00" * n), 100_000),
}  # fmt: skip


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_is_linear(name: str) -> None:
    work, size = DECODERS[name]
    assert not grows_too_fast(work, size)


#: Modules with functions that take bytes and yet read nothing of strangers by themselves, and why.
NO_DECODERS = {
    "addresses": "read from the kernel",
    "certificate": "read from the operator",
    "in_flight": "read from our own processes",
    "recorded": "read from our own recordings",
    "relay": "leaves reading to client",
    "blocks": "keeps only",
    "client": "leaves reading to http_head and request_body",
    "core": "leaves reading to http_head and answer",
    "driver": "leaves reading to core",
    "hops": "writes only",
    "ports": "has no code",
    "sending": "writes only",
    "settings": "read from the operator",
    "supervisor_line": "read from the supervisor",
    "tap": "read from the relay",
    "tap_writer": "writes only",
    "tls": "OpenSSL reads",
}


def takes_bytes(module: ModuleType) -> bool:
    functions = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.FunctionDef)]
    arguments = itertools.chain.from_iterable(
        (*function.args.args, *function.args.kwonlyargs) for function in functions
    )
    return any("bytes" in ast.unparse(argument.annotation) for argument in arguments if argument.annotation is not None)


def test_every_module_that_takes_bytes_is_thought_of() -> None:
    thought_of = {part for name in DECODERS for part in name.partition(":")[0].split(", ")} | set(NO_DECODERS)
    takers = {module.__name__.rpartition(".")[2] for module in modules() if takes_bytes(module)}
    assert takers <= thought_of, "add a case to DECODERS, or a reason to NO_DECODERS"
