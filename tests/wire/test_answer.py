"""One answer read by read: any split, any compression, any shape, the quick way and the long way."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import brotli
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prefillwatch.wire.answer import MAX_ANSWER_BYTES, AnswerReader
from prefillwatch.wire.inflate import Inflater

SSE = "text/event-stream"


def chunk(text: str, *, index: int = 0, finish: str | None = None, key: str = "content", **fields: Any) -> bytes:
    choice = {"index": index, "delta": {key: text}, "logprobs": None, "finish_reason": finish}
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "llama", "choices": [choice], **fields}
    return b"data: " + json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def opener() -> bytes:
    choice = b'{"index":0,"delta":{"role":"assistant","content":""}}'
    return b'data: {"id":"chatcmpl-1","model":"llama","choices":[' + choice + b"]}\n\n"


def usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


def last(prompt: int, completion: int) -> bytes:
    return b"data: " + json.dumps({"choices": [], "usage": usage(prompt, completion)}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
WORDS = ["Hel", "lo", " 好", ' "quoted"', "\n\n", " back\\slash", "\u2028", " 🎉", "data: [DONE]", "."]
STREAM = b"".join(
    [b": waiting\n\n", opener(), *(chunk(word) for word in WORDS), chunk("", finish="stop"), last(20, 12), DONE]
)


def read_all(
    reads: Iterable[bytes], endpoint: str = "chat_completions", **options: Any
) -> tuple[AnswerReader, list[Any]]:
    """Feed the reads; what each of them brought."""
    answer = AnswerReader(endpoint, SSE, **options)
    brought = []
    for read in reads:
        events = answer.feed(read)
        brought.append((events, answer.chars_in_read, answer.tokens_in_read, answer.others, answer.others_tokens))
    return answer, brought


def facts(answer: AnswerReader) -> tuple[Any, ...]:
    tokens = (answer.token_events, answer.completion_tokens)
    return *answer.frame(), *tokens, answer.comments, answer.unparsed


def totals(brought: list[Any]) -> tuple[Any, ...]:
    others: dict[int, int] = {}
    others_tokens: dict[int, int] = {}
    for _, _, _, counts, tokens in brought:
        for index, count in (counts or {}).items():
            others[index] = others.get(index, 0) + count
        for index, count in (tokens or {}).items():
            others_tokens[index] = others_tokens.get(index, 0) + count
    return *(sum(read[place] for read in brought) for place in range(3)), others, others_tokens


def cut(stream: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


# --- Splits ---


def test_every_split_in_two_gives_the_same_facts() -> None:
    whole, brought = read_all([STREAM])
    assert totals(brought)[0] == len(WORDS)
    assert (whole.prompt_tokens, whole.completion_tokens, whole.comments) == (20, 12, 1)
    for place in range(1, len(STREAM)):
        answer, pieces = read_all(cut(STREAM, [place]))
        assert facts(answer) == facts(whole)
        assert totals(pieces) == totals(brought)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_one_byte_per_read(end: bytes) -> None:
    stream = STREAM.replace(b"\n", end)
    whole, brought = read_all([stream])
    answer, pieces = read_all(bytes([byte]) for byte in stream)
    assert facts(answer) == facts(whole)
    assert totals(pieces) == totals(brought)
    assert max(read[0] for read in pieces) == 1


def test_the_read_that_completes_the_event_brings_the_token() -> None:
    read = chunk("好")
    place = read.index("好".encode())
    answer = AnswerReader("chat_completions", SSE)
    assert [answer.feed(piece) for piece in cut(read, [place + 1, place + 2])] == [0, 0, 1]
    assert answer.chars_in_read == 1
    assert [answer.feed(piece) for piece in cut(read, [place + 1, len(read) - 1])] == [0, 0, 1]


def test_several_events_in_one_read_are_counted() -> None:
    answer = AnswerReader("chat_completions", SSE)
    assert answer.feed(opener() + chunk("a") + chunk("b") + chunk("c")) == 3
    assert answer.chars_in_read == 3
    assert answer.feed(chunk("a") + chunk("b") + chunk("c") + chunk("d")) == 4
    assert answer.feed(chunk("e") + chunk("", finish="stop") + last(1, 8) + DONE) == 1
    assert (answer.completion_tokens, answer.finished, answer.token_events) == (8, True, 8)


def test_json_over_several_data_lines() -> None:
    answer = AnswerReader("chat_completions", SSE)
    read = b'id: 1\ndata: {"choices":[\nevent: message\ndata: {"delta":{"content":"x"}}]}\nretry: 5\n\n'
    assert [answer.feed(read) for _ in range(4)] == [1] * 4


def test_a_byte_order_mark_does_not_hide_the_first_token() -> None:
    answer = AnswerReader("chat_completions", SSE)
    assert answer.feed(b"\xef\xbb\xbf" + chunk("a")) == 1


def test_a_last_event_without_its_blank_line_is_no_token_but_its_usage_counts() -> None:
    answer = AnswerReader("chat_completions", SSE)
    assert answer.feed(chunk("a") + chunk("b", usage=usage(5, 2))[:-2]) == 1
    answer.finish()
    assert (answer.token_events, answer.completion_tokens, answer.unparsed) == (1, 2, {})
    answer = AnswerReader("chat_completions", SSE)
    assert answer.feed(chunk("a") + b"data: [DONE]\n") == 1
    answer.finish()
    assert answer.finished
    answer = AnswerReader("chat_completions", SSE)
    answer.feed(chunk("a") + chunk("b")[:40])
    answer.finish()
    assert (answer.unparsed, answer.finished) == ({}, False)


# --- What is not read ---


def test_an_endless_line_is_given_up_and_the_stream_is_not() -> None:
    answer = AnswerReader("chat_completions", SSE)
    assert answer.feed(chunk("a")) == 1
    for _ in range(100):
        assert answer.feed(b"data: " + b"x" * 60_000) == 0
    assert answer.feed(b"\n\n" + chunk("b")) == 1
    assert answer.unparsed == {"too_long": 1}


def test_events_that_are_no_json_are_counted() -> None:
    answer = AnswerReader("chat_completions", SSE)
    assert answer.feed(b"data: {nope\n\n" + chunk("a") + b"data: \xff\xfe\n\ndata: [[[\n\ndata:\n\n") == 1
    assert answer.unparsed == {"json": 2, "utf8": 1}
    assert answer.complete


def test_deep_nesting_does_not_hurt() -> None:
    answer = AnswerReader("chat_completions", SSE)
    assert answer.feed(b"data: " + b"[" * 500_000 + b"\n\n" + b'data: {"x":' + b'{"x":' * 100_000 + b"\n\n") == 0
    assert answer.unparsed == {"json": 2}
    assert answer.feed(chunk("a")) == 1


@pytest.mark.parametrize("content_type", ["audio/mpeg", "", "text/plain", "application/octet-stream"])
def test_other_content_types_pass_unread(content_type: str) -> None:
    answer = AnswerReader("chat_completions", content_type)
    assert answer.feed(chunk("a")) == 0
    answer.hole()
    answer.finish()
    assert (answer.token_events, answer.unparsed) == (0, {})


def test_what_is_not_read_is_not_inflated() -> None:
    answer = AnswerReader("chat_completions", "image/png", "gzip")
    answer.feed(b"no gzip")
    assert answer.unparsed == {}


def test_other_endpoints_pass_unread() -> None:
    answer = AnswerReader("other", SSE)
    assert answer.feed(chunk("a")) == 0
    answer.finish()
    assert answer.token_events == 0


def test_binary_under_the_name_of_an_event_stream() -> None:
    noise = random.Random(7)
    answer = AnswerReader("chat_completions", SSE)
    for _ in range(200):
        assert answer.feed(noise.randbytes(4000)) == 0
    answer.finish()
    assert answer.token_events == 0


def test_a_json_answer_has_a_limit() -> None:
    answer = AnswerReader("chat_completions", "application/json")
    answer.feed(b'{"id":"')
    for _ in range(MAX_ANSWER_BYTES // (1 << 20) + 1):
        answer.feed(b"x" * (1 << 20))
    answer.finish()
    assert (answer.unparsed, answer.complete) == ({"too_long": 1}, False)


def test_a_json_answer_that_breaks_off() -> None:
    answer = AnswerReader("chat_completions", "application/json")
    answer.feed(b'{"id":"chatcmpl')
    answer.finish()
    assert (answer.unparsed, answer.finished) == ({"json": 1}, False)


# --- Compression ---


def deflate_raw(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": deflate_raw,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "identity": bytes,
    "gzip, br": lambda data: brotli.compress(gzip.compress(data)),
}


@pytest.mark.parametrize("encoding", PACKERS)
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_compressed_streams_are_read_on_a_copy(encoding: str, size: int) -> None:
    packed = PACKERS[encoding](STREAM)
    answer, brought = read_all(
        (packed[start : start + size] for start in range(0, len(packed), size)), content_encoding=encoding
    )
    whole, expected = read_all([STREAM])
    assert facts(answer) == facts(whole)
    assert totals(brought) == totals(expected)


def test_tokens_of_a_compressed_stream_come_with_their_reads() -> None:
    packer = zlib.compressobj(wbits=31)
    answer = AnswerReader("chat_completions", SSE, "gzip")
    for word in WORDS * 3:
        assert answer.feed(packer.compress(chunk(word)) + packer.flush(zlib.Z_SYNC_FLUSH)) == 1


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "compress", "gzip, gzip, gzip"])
def test_a_wrong_encoding_is_counted_once(encoding: str) -> None:
    answer = AnswerReader("chat_completions", SSE, encoding)
    for word in WORDS * 20:
        assert answer.feed(chunk(word)) == 0
    answer.finish()
    assert answer.unparsed == {"encoding": 1}
    assert not answer.complete


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("junk", [b"\x00\x00\x00", b"junk\n"])
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_junk_behind_a_compressed_answer_costs_nothing_of_it(encoding: str, junk: bytes, size: int) -> None:
    packed = PACKERS[encoding](STREAM) + junk
    reads = (packed[start : start + size] for start in range(0, len(packed), size))
    answer, brought = read_all(reads, content_encoding=encoding)
    whole, expected = read_all([STREAM])
    assert totals(brought) == totals(expected)
    assert (answer.completion_tokens, answer.finished) == (whole.completion_tokens, whole.finished)
    assert answer.unparsed == {"encoding": 1}

    document = AnswerReader("chat_completions", "application/json", encoding)
    packed = PACKERS[encoding](json.dumps({"usage": usage(4, 2)}).encode()) + junk
    for start in range(0, len(packed), size):
        document.feed(packed[start : start + size])
    document.finish()
    assert (document.prompt_tokens, document.unparsed) == (4, {"encoding": 1})


@pytest.mark.apart
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_bomb_is_not_inflated(encoding: str) -> None:
    bomb = PACKERS[encoding](bytes(64 << 20))
    answer = AnswerReader("chat_completions", SSE, encoding)
    assert answer.feed(bomb) == 0
    assert answer.unparsed == {"encoding": 1}


@pytest.mark.apart
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_bomb_in_many_reads_is_given_up(encoding: str) -> None:
    bomb = PACKERS[encoding](b"data: {}\n\n" * (64 << 17))
    answer = AnswerReader("chat_completions", SSE, encoding)
    inflated = 0

    class Counting:
        def __init__(self, inner: Inflater) -> None:
            self.inner = inner

        def feed(self, data: bytes) -> bytes:
            nonlocal inflated
            out = self.inner.feed(data)
            inflated += len(out)
            return out

    assert answer._inflater is not None
    answer._inflater = Counting(answer._inflater)
    for start in range(0, len(bomb), 1024):
        answer.feed(bomb[start : start + 1024])
    assert answer.unparsed == {"encoding": 1}
    assert inflated < (16 << 20) + 256 * len(bomb)
    assert inflated < 40 << 20


@pytest.mark.apart
def test_an_answer_that_packs_well_is_read_to_its_end() -> None:
    words = random.Random(1).choices(WORDS, k=100_000)
    packed = gzip.compress(b"".join(map(chunk, words)))
    answer = AnswerReader("chat_completions", SSE, "gzip")
    for start in range(0, len(packed), 16_384):
        answer.feed(packed[start : start + 16_384])
    assert (answer.token_events, answer.unparsed) == (100_000, {})


def test_a_json_answer_with_too_much_in_it_is_not_read() -> None:
    answer = AnswerReader("chat_completions", "application/json")
    answer.feed(b'{"choices":[' + b"{}," * 2_000_001 + b"{}]}")
    answer.finish()
    assert (answer.unparsed, answer.complete) == ({"too_long": 1}, False)
    logprobs = b'{"token":"a","logprob":-1.5,"bytes":[97]},' * 150_000
    answer = AnswerReader("chat_completions", "application/json")
    answer.feed(b'{"choices":[{"logprobs":[' + logprobs + b'{}]}],"usage":{"prompt_tokens":5,"completion_tokens":7}}')
    answer.finish()
    assert (answer.completion_tokens, answer.unparsed) == (7, {})


def test_a_compressed_json_answer() -> None:
    answer = AnswerReader("chat_completions", "application/json", "br")
    answer.feed(brotli.compress(json.dumps({"usage": usage(4, 2)}).encode()))
    answer.finish()
    assert (answer.prompt_tokens, answer.completion_tokens) == (4, 2)


# --- Lost bytes ---


def test_after_a_hole_reading_goes_on_and_counts_are_lower_bounds() -> None:
    answer = AnswerReader("chat_completions", SSE)
    assert answer.feed(chunk("a") + chunk("b")[:30]) == 1
    answer.hole()
    assert answer.feed(chunk("lost in part")[20:]) == 0
    assert answer.feed(chunk("c")) == 1
    assert (answer.complete, answer.unparsed, answer.token_events) == (False, {}, 2)


def test_after_a_hole_between_events_nothing_more_is_lost() -> None:
    answer = AnswerReader("chat_completions", SSE)
    assert [answer.feed(chunk("a")) for _ in range(3)] == [1, 1, 1]
    answer.hole()
    assert [answer.feed(chunk("a")) for _ in range(3)] == [1, 1, 1]


def test_after_a_hole_usage_does_not_charge_the_lost_tokens_to_one_read() -> None:
    answer = AnswerReader("chat_completions", SSE)
    for count in (1, 2):
        answer.feed(chunk("a", usage=usage(9, count)))
        assert answer.tokens_in_read == 1
    answer.hole()
    assert answer.feed(chunk("z", usage=usage(9, 40))) == 1
    assert (answer.tokens_in_read, answer.completion_tokens) == (0, 40)
    assert answer.feed(chunk("z", usage=usage(9, 42))) == 1
    assert answer.tokens_in_read == 2


@pytest.mark.parametrize(("content_type", "encoding"), [(SSE, "gzip"), ("application/json", "")])
def test_what_cannot_be_resumed_after_a_hole_is_given_up(content_type: str, encoding: str) -> None:
    answer = AnswerReader("chat_completions", content_type, encoding)
    answer.feed(gzip.compress(chunk("a"))[:20] if encoding else b'{"usage"')
    answer.hole()
    answer.feed(b"more")
    answer.finish()
    assert (answer.unparsed, answer.complete) == ({"hole": 1}, False)


# --- The quick way and the long way ---


def response_delta(text: str, number: int) -> bytes:
    body = {"content_index": 0, "delta": text, "item_id": "m", "sequence_number": number}
    kind = "response.output_text.delta"
    return f"event: {kind}\ndata: {json.dumps({**body, 'type': kind}, ensure_ascii=False)}\n\n".encode()


def early_number(text: str, number: int) -> bytes:
    body = {"type": "response.output_text.delta", "sequence_number": number, "item_id": "m", "delta": text}
    return f"event: {body['type']}\ndata: {json.dumps(body)}\n\n".encode()


def message_delta(text: str, number: int) -> bytes:
    body = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return f"event: content_block_delta\ndata: {json.dumps(body)}\n\n".encode()


def completion(text: str, number: int) -> bytes:
    return b"data: " + json.dumps({"id": "c", "choices": [{"index": 0, "text": text}]}).encode() + b"\n\n"


def with_spaces(text: str, number: int) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}, indent=None).encode() + b"\n\n"


SHAPES: dict[str, tuple[str, Callable[[str, int], bytes]]] = {
    "chat": ("chat_completions", lambda text, _: chunk(text)),
    "chat of two choices": ("chat_completions", lambda text, number: chunk(text, index=number % 2)),
    "chat with usage": ("chat_completions", lambda text, number: chunk(text, usage=usage(30, 1 + 2 * number))),
    "chat of two choices with usage": (
        "chat_completions",
        lambda text, number: chunk(text, index=number % 2, usage=usage(30, 1 + number)),
    ),
    "reasoning": ("chat_completions", lambda text, _: chunk(text, key="reasoning")),
    "spaced": (
        "chat_completions",
        lambda text, _: f'data: {{"choices": [{{"delta": {{"content": {json.dumps(text)}}}}}]}}\n\n'.encode(),
    ),
    "crlf": ("chat_completions", lambda text, _: chunk(text).replace(b"\n", b"\r\n")),
    "log probabilities": ("chat_completions", lambda text, number: chunk(text, logprobs=[text, number])),
    "completions": ("completions", completion),
    "responses": ("responses", response_delta),
    "responses, number first": ("responses", early_number),
    "messages": ("messages", message_delta),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stream_of_one_shape_reads_the_same_both_ways(shape: str) -> None:
    endpoint, make = SHAPES[shape]
    reads = [make(WORDS[number % len(WORDS)], number) for number in range(40)]
    quick, brought = read_all(reads, endpoint)
    long, expected = read_all(reads, endpoint, templates=False)
    assert brought == expected
    assert facts(quick) == facts(long)
    assert quick.token_events == 40
    assert len(quick._templates) == (2 if "two choices" in shape else 1)
    assert not long._templates


TEXTS = st.one_of(
    st.sampled_from(
        [*WORDS, "", "\\", '"', '"},"finish_reason":"stop"}]}', '"}}]}\n\n', "data: {", "\x00", "\x7f", "é" * 50]
    ),
    st.text(max_size=12),
)


KINDS = ["text"] * 8 + ["usage", "finish", "last", "done", "comment", "odd", "damaged", "escaped"]
COMMENTS = [b": keep-alive\n\n", b":\n", b"id: 3\n", b"event: error\n", b"retry: 1\n\n"]
ODD = [b"data: null\n\n", b"data: {}\n\n", b'data: {"choices":[null]}\n\n', b"data:\n\n", b"\n"]


@st.composite
def events(draw: st.DrawFn) -> bytes:
    """An event of a chat stream, usual or not, as some server might write it."""
    kind = draw(
        st.sampled_from(["text"] * 8 + ["usage", "finish", "last", "done", "comment", "odd", "damaged", "escaped"])
    )
    text = draw(TEXTS)
    index = draw(st.sampled_from([0, 0, 0, 1, 2]))
    if kind == "usage":
        return chunk(text, index=index, usage=usage(30, draw(st.integers(0, 50))))
    if kind == "finish":
        return chunk(text, index=index, finish="stop")
    if kind == "last":
        return last(30, draw(st.integers(0, 50)))
    if kind == "done":
        return DONE
    if kind == "comment":
        return draw(st.sampled_from(COMMENTS))
    if kind == "odd":
        return draw(st.sampled_from(ODD))
    if kind == "escaped":
        return chunk(text).decode().encode("ascii", "backslashreplace")
    event = chunk(text, index=index)
    return damage(event, draw) if kind == "damaged" else event


def damage(event: bytes, draw: st.DrawFn) -> bytes:
    """Change one place of an event: what a template must not overlook."""
    place = draw(st.integers(0, len(event) - 1))
    piece = draw(st.sampled_from([b"", b'"', b"\\", b"\n", b"\r", b"\xff", b"}", b",", b"0", b" ", b"\n\n", b'\\"']))
    return event[:place] + piece + event[place + draw(st.integers(0, 2)) :]


@settings(max_examples=400, deadline=None)
@given(stream=st.lists(events(), max_size=25), data=st.data())
def test_reads_of_whole_events_bring_the_same_both_ways(stream: list[bytes], data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=len(stream), max_size=len(stream)))
    reads = []
    while stream:
        size = sizes.pop()
        reads.append(b"".join(stream[:size]))
        stream = stream[size:]
    # The template is known before the first of them.
    reads[:0] = [opener(), chunk("a"), chunk("b")]
    quick, brought = read_all(reads)
    long, expected = read_all(reads, templates=False)
    assert brought == expected
    assert facts(quick) == facts(long)


@settings(max_examples=300, deadline=None)
@given(stream=st.lists(events(), max_size=12), data=st.data())
@example(stream=[chunk("a"), chunk("b"), chunk("c")], data=None)
def test_any_split_of_any_stream_gives_the_same_facts(stream: list[bytes], data: st.DataObject | None) -> None:
    whole = b"".join(stream)
    places = data.draw(st.sets(st.integers(0, len(whole)), max_size=15)) if data is not None else range(len(whole))
    reads = cut(whole, places)
    quick, brought = read_all(reads)
    long, expected = read_all(reads, templates=False)
    assert brought == expected
    assert facts(quick) == facts(long)
    once, together = read_all([whole])
    assert facts(quick) == facts(once)
    assert totals(brought) == totals(together)


@settings(max_examples=200, deadline=None)
@given(texts=st.lists(TEXTS, min_size=3, max_size=20), shape=st.sampled_from(list(SHAPES)), data=st.data())
def test_every_shape_survives_every_text(texts: list[str], shape: str, data: st.DataObject) -> None:
    endpoint, make = SHAPES[shape]
    reads = [make(text, number) for number, text in enumerate(texts)]
    if data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(reads) - 1))
        reads[place] = reads[place].replace(b"0", data.draw(st.sampled_from([b"00", b"-1", b"1.5", b"01", b'"9"'])))
    quick, brought = read_all(reads, endpoint)
    long, expected = read_all(reads, endpoint, templates=False)
    assert brought == expected
    assert facts(quick) == facts(long)


@settings(max_examples=100, deadline=None)
@given(
    junk=st.lists(st.one_of(st.binary(max_size=60), events()), max_size=20),
    endpoint=st.sampled_from(["messages", "responses", "completions"]),
)
def test_nothing_makes_it_raise(junk: list[bytes], endpoint: str) -> None:
    answer, _ = read_all(junk, endpoint)
    answer.hole()
    answer.feed(b"".join(junk))
    answer.finish()
    document = AnswerReader(endpoint, "application/json")
    document.feed(b"".join(junk))
    document.finish()
