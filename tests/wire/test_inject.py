from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefillwatch.wire.inject import MAX_HELD_BYTES, UsageStripper, rewrite

CHAT = "/v1/chat/completions"
ASKED = {"include_usage": True, "continuous_usage_stats": True}

# --- Asking ---


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/prefix/v1/completions?x=1"])
@pytest.mark.parametrize("body", [b'{"model":"m","stream":true}', b' {\n  "stream": true, "model": "m"\n}\n'])
def test_a_stream_is_asked_for_usage_and_keeps_every_other_byte(path: str, body: bytes) -> None:
    changed = rewrite(body, path)
    assert changed is not None
    assert json.loads(changed) == {"model": "m", "stream": True, "stream_options": ASKED}
    added = b'"stream_options":{"include_usage":true,"continuous_usage_stats":true},'
    assert changed.replace(added, b"") == body


def test_null_is_nothing_said() -> None:
    changed = rewrite(b'{"stream":true, "stream_options" : null, "x":"\\"stream_options\\":null"}', CHAT)
    assert changed is not None
    assert json.loads(changed) == {"stream": True, "stream_options": ASKED, "x": '"stream_options":null'}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nope",
        b"[]",
        b"\xff\xfe",
        b'{"model":"m"}',
        b'{"stream":false}',
        b'{"stream":null}',
        b'{"stream":"true"}',
        b'{"stream":true',
        b'{"stream":true} x',
        b'{"stream":true,"stream_options":{"include_usage":false}}',
        b'{"stream":true,"stream_options":{"include_usage":true}}',
        b'{"stream":true,"stream_options":{}}',
        b'{"stream":true,"stream_options":null,"x":{"stream_options":null}}',
        b'{"stream":true,"stream\\u005foptions":null}',
        b"[" * 100_000,
    ],
)
def test_what_is_left_alone(body: bytes) -> None:
    assert rewrite(body, CHAT) is None


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/embeddings", "/"])
def test_other_endpoints_are_left_alone(path: str) -> None:
    assert rewrite(b'{"stream":true}', path) is None


# --- Taking it out again ---


def event(body: str) -> bytes:
    return f"data: {body}\n\n".encode()


OPENER = '{"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]%s,"prompt_token_ids":null}'
TOKEN = '{"id":"c","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]%s}'
USAGE = ',"usage":{"prompt_tokens":7,"total_tokens":9,"completion_tokens":2}'
DETAILS = (
    ',"usage":{"prompt_tokens":7,"total_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3}}'
)
REASONING = USAGE[:-1] + ',"prompt_tokens_details":null,"completion_tokens_details":{"reasoning_tokens":0}}'
ONLY = '{"id":"c","object":"x","created":1,"model":"m","choices":[]%s}'
DONE = b"data: [DONE]\n\n"


def strip(*reads: bytes) -> bytes:
    stripper = UsageStripper()
    return b"".join(stripper.feed(read) for read in reads) + stripper.finish()


@pytest.mark.parametrize("usage", [USAGE, DETAILS, REASONING, ',"usage":null'])
def test_usage_goes_and_nothing_else(usage: str) -> None:
    asked = event(OPENER % usage) + event(TOKEN % ("Hi", usage)) + event(TOKEN % ("好\\n", usage)) + DONE
    plain = event(OPENER % "") + event(TOKEN % ("Hi", "")) + event(TOKEN % ("好\\n", "")) + DONE
    assert strip(asked) == plain


@pytest.mark.parametrize("usage", [USAGE, DETAILS, REASONING])
def test_the_event_that_has_nothing_else_is_dropped(usage: str) -> None:
    assert strip(event(TOKEN % ("Hi", "")) + event(ONLY % usage) + DONE) == event(TOKEN % ("Hi", "")) + DONE


# Written by vLLM 0.32: an opener, a token, a last token, with and without usage in every chunk.
VLLM_FRAME = '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[%s]%s}'
VLLM_CHUNKS = [
    (
        '{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}',
        ',"prompt_token_ids":null,"prompt_text":null',
    ),
    ('{"index":0,"delta":{"content":" hi"},"logprobs":null,"finish_reason":null,"token_ids":null}', ""),
    (
        '{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}',
        "",
    ),
]
VLLM_USAGE = ',"usage":{"prompt_tokens":5,"total_tokens":%d,"completion_tokens":%d,"completion_tokens_details":null}'
VLLM_LAST = (
    ',"usage":{"prompt_tokens":5,"total_tokens":7,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}},'
    '"system_fingerprint":"vllm-0.32","metrics":{"time_to_first_token_ms":20.0,"queue_time_ms":1.5}'
)


def test_what_vllm_adds_is_taken_out() -> None:
    asked = b"".join(
        event(VLLM_FRAME % (choice, VLLM_USAGE % (5 + count, count) + rest))
        for count, (choice, rest) in enumerate(VLLM_CHUNKS)
    )
    plain = b"".join(event(VLLM_FRAME % chunk) for chunk in VLLM_CHUNKS)
    assert strip(asked + event(VLLM_FRAME % ("", VLLM_LAST)) + DONE) == plain + DONE


def test_an_event_is_passed_on_by_the_read_that_completes_it() -> None:
    stripper = UsageStripper()
    whole = event(TOKEN % ("Hi", USAGE))
    assert stripper.feed(whole[:40]) == b""
    assert stripper.feed(whole[40:-1]) == b""
    assert stripper.feed(whole[-1:] + b"data: n") == event(TOKEN % ("Hi", ""))
    assert stripper.finish() == b"data: n"


@pytest.mark.parametrize(
    "text",
    [
        b": keep-alive\n\n",
        b'event: x\ndata: {"usage":null}\n\n',
        b'data: {"choices":[]}\n\n',
        b'data: {"choices":[],"usage":null',
        b'data: {"error":{"usage":{"a":1}}}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\"usage\\":null}"}}]}\n\n',
        b'data: {"choices":[{"delta":{"usage":null}}]}\n\n',
        b'data: {"choices":[{"usage":{"prompt_tokens":7}}]}\n\n',
        b'data: ["usage"]\n\n',
        b'data: {"usage":{nope}}\n\n',
        b'data: \xff"usage"\n\n',
    ],
)
def test_what_is_not_ours_passes(text: bytes) -> None:
    assert strip(text) == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"usage":{"a":{"b":[1]}},"choices":[1]}', '{"choices":[1]}'),
        ('{"choices":[1], "usage": {"a": 1}, "x": 2}', '{"choices":[1], "x": 2}'),
        ('{"x":{"usage":null},"usage":null,"choices":[1]}', '{"x":{"usage":null},"choices":[1]}'),
        ('{"usage":null,"x":{"usage":null},"choices":[1]}', '{"x":{"usage":null},"choices":[1]}'),
        ('{"choices":[1],"x":"y,","usage":null}', '{"choices":[1],"x":"y,"}'),
    ],
)
def test_usage_anywhere_in_the_document(before: str, after: str) -> None:
    assert strip(event(before)) == event(after)


def test_crlf_streams() -> None:
    asked = event(TOKEN % ("Hi", USAGE)) + event(ONLY % USAGE) + DONE
    plain = event(TOKEN % ("Hi", "")) + DONE
    assert strip(asked.replace(b"\n", b"\r\n")) == plain.replace(b"\n", b"\r\n")


def test_what_is_no_event_stream_passes_at_once() -> None:
    stripper = UsageStripper()
    assert stripper.feed(b"\x1f\x8b compressed") == b"\x1f\x8b compressed"
    assert stripper.feed(event(ONLY % USAGE)) == event(ONLY % USAGE)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_an_event_too_long_to_hold_passes_and_the_next_one_is_looked_at_again(end: bytes, size: int) -> None:
    stripper = UsageStripper()
    beginning = b"data: " + b"x" * MAX_HELD_BYTES
    assert stripper.feed(beginning) == beginning
    token, only = (event(text).replace(b"\n\n", end) for text in (TOKEN % ("Hi", USAGE), ONLY % USAGE))
    rest = b"x" * 10 + end + token + only + b"data: [DONE]" + end
    out = b"".join(stripper.feed(rest[start : start + size]) for start in range(0, len(rest), size))
    plain = event(TOKEN % ("Hi", "")).replace(b"\n\n", end)
    assert out + stripper.finish() == b"x" * 10 + end + plain + b"data: [DONE]" + end


def test_byte_by_byte_is_linear_and_right() -> None:
    asked = b"".join(event(TOKEN % ("Hi", USAGE)) for _ in range(20)) + event(ONLY % USAGE) + DONE
    assert strip(*(bytes([byte]) for byte in asked)) == event(TOKEN % ("Hi", "")) * 20 + DONE


CHUNKS = st.fixed_dictionaries(
    {
        "id": st.just("c"),
        "choices": st.lists(st.dictionaries(st.just("text"), st.text(max_size=8), min_size=1), min_size=1),
    },
    optional={"x": st.text(max_size=8), "usage_like": st.just({"usage": None})},
)


@settings(deadline=None)
@given(chunks=st.lists(CHUNKS, max_size=8), place=st.integers(0, 4), data=st.data())
def test_any_stream_comes_out_as_if_usage_had_not_been_asked_for(
    chunks: list[dict[str, Any]], place: int, data: st.DataObject
) -> None:
    style: dict[str, Any] = {"ensure_ascii": data.draw(st.booleans())}
    if data.draw(st.booleans()):
        style["separators"] = (",", ":")
    asked, plain = b"", b""
    for number, chunk in enumerate(chunks):
        members = list(chunk.items())
        members.insert(min(place, len(members)), ("usage", {"prompt_tokens": 4, "completion_tokens": number}))
        asked += event(json.dumps(dict(members), **style))
        plain += event(json.dumps(chunk, **style))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(asked)), max_size=8)))
    reads = [asked[start:end] for start, end in zip([0, *cuts], [*cuts, len(asked)], strict=True)]
    assert strip(*reads) == plain
