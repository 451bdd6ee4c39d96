from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from prefillwatch.wire.request import MAX_INFLATED_BYTES, RequestFacts, glance, read_request

CHAT = "/v1/chat/completions"


def read(path: str, body: Any, complete: bool = True, encoding: str = "") -> RequestFacts:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    facts = read_request(path, encoding, data, complete)
    assert facts is not None
    return facts


def test_a_chat_request() -> None:
    facts = read(
        CHAT,
        {
            "model": "llama",
            "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Grüße 好"}],
            "stream": True,
            "max_tokens": 100,
            "n": 3,
        },
    )
    assert facts == RequestFacts(
        endpoint="chat_completions", model="llama", stream=True, choices=3, prompt_chars=15, max_tokens=100
    )


def test_defaults_of_a_request_that_says_little() -> None:
    facts = read(CHAT, {"messages": []})
    assert facts == RequestFacts(endpoint="chat_completions", stream=False, prompt_chars=0)


@pytest.mark.parametrize(
    ("options", "include", "continuous"),
    [
        (None, None, None),
        ({}, None, None),
        ({"include_usage": False}, False, None),
        ({"include_usage": True, "continuous_usage_stats": True}, True, True),
        ({"include_usage": "yes"}, None, None),
        ("odd", None, None),
    ],
)
def test_what_the_client_says_about_usage(options: object, include: bool | None, continuous: bool | None) -> None:
    facts = read(CHAT, {"stream": True, "stream_options": options})
    assert (facts.include_usage, facts.continuous_usage) == (include, continuous)


@pytest.mark.parametrize(("said", "hides"), [(False, True), (True, False), (None, False), ("no", False)])
def test_who_asks_for_no_reasoning_to_be_shown(said: object, hides: bool) -> None:
    assert read(CHAT, {"messages": [], "include_reasoning": said}).hides_thought == hides


def test_content_of_all_kinds_is_measured_and_media_counted() -> None:
    content = [
        {"type": "text", "text": "12345"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10_000}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "video_url", "video_url": {"url": "https://example.org/v.mp4"}},
        "67",
        {"type": "refusal", "refusal": "890"},
        {"type": "thinking", "thinking": "12"},
    ]
    facts = read(CHAT, {"messages": [{"role": "user", "content": content}]})
    assert (facts.prompt_chars, facts.media) == (12, 3)


def test_tools_and_earlier_tool_calls_are_prompt() -> None:
    tools = b'[{"type":"function","function":{"name":"f","parameters":{}}}]'
    call = b'[{"id":"1","function":{"name":"f","arguments":"{}"}}]'
    body = (
        b'{"tools":' + tools + b',"messages":[{"role":"assistant","content":null,"tool_calls":' + call + b"},"
        b'{"role":"tool","content":"sunny"}],"functions":null}'
    )
    assert read(CHAT, body).prompt_chars == len(tools) + len(call) + 5


def test_reasoning_of_earlier_turns_is_prompt() -> None:
    messages = [{"role": "assistant", "content": "a", "reasoning": "bcd"}, {"content": "e", "reasoning_content": "f"}]
    assert read(CHAT, {"messages": messages}).prompt_chars == 6


@pytest.mark.parametrize(
    ("prompt", "prompts", "chars", "tokens"),
    [
        ("hello", 1, 5, None),
        (["hello", "you"], 2, 8, None),
        ([1, 2, 3], 1, 0, 3),
        ([[1, 2, 3], [4, 5]], 2, 0, 5),
        ([], 1, 0, None),
        (None, 1, 0, None),
        (7, 1, 0, None),
        ([{"odd": 1}, "abc"], 1, 3, None),
    ],
)
def test_prompts_of_a_completion(prompt: object, prompts: int, chars: int, tokens: int | None) -> None:
    facts = read("/v1/completions", {"model": "llama", "prompt": prompt})
    assert (facts.prompts, facts.prompt_chars, facts.prompt_tokens) == (prompts, chars, tokens)


def test_a_responses_request() -> None:
    items = [
        {"role": "user", "content": "hello"},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "abc"}, {"type": "input_image"}],
        },
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "output": "sunny"},
        {"type": "reasoning", "summary": []},
    ]
    body = {"model": "llama", "instructions": "Be kind.", "input": items, "max_output_tokens": 9, "stream": True}
    facts = read("/v1/responses", body)
    assert (facts.endpoint, facts.prompt_chars, facts.media, facts.max_tokens) == ("responses", 24, 1, 9)
    assert read("/v1/responses", {"input": "hello"}).prompt_chars == 5


def test_a_messages_request() -> None:
    blocks = [
        {"type": "tool_use", "name": "f", "input": {"a": 1}},
        {"type": "tool_result", "content": [{"type": "text", "text": "sunny"}, {"type": "image", "source": {}}]},
        {"type": "tool_result", "content": "rain"},
    ]
    body = {
        "model": "llama",
        "max_tokens": 5,
        "system": [{"type": "text", "text": "Be kind."}],
        "messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": blocks}],
    }
    facts = read("/v1/messages", json.dumps(body, separators=(",", ":")).encode())
    assert (facts.prompt_chars, facts.media, facts.stream) == (8 + 5 + 1 + 7 + 5 + 4, 1, False)
    assert read("/v1/messages", {"system": "Be kind."}).prompt_chars == 8


def test_fields_of_odd_shape_are_unknown_and_the_rest_is_read() -> None:
    facts = read(
        CHAT, {"model": 5, "stream": "yes", "n": "2", "max_tokens": -4, "messages": [None, {"content": "abc"}, 3]}
    )
    assert facts == RequestFacts(endpoint="chat_completions", model="other", stream=False, prompt_chars=3)
    facts = read(CHAT, {"model": "llama", "n": 10**30, "max_tokens": 0, "messages": {"content": "abc"}})
    assert (facts.model, facts.choices, facts.max_tokens, facts.prompt_chars) == ("llama", 1, 0, 0)


@pytest.mark.parametrize("leaf", [b'"abc"', b"5"])
@pytest.mark.parametrize("depth", [2, 60, 200, 400])
def test_content_inside_content_does_not_hurt(depth: int, leaf: bytes) -> None:
    content = b'[{"type":"tool_result","content":' * depth + leaf + b"}]" * depth
    facts = read(CHAT, b'{"model":"llama","messages":[{"role":"user","content":' + content + b"}]}")
    assert facts.model == "llama"
    assert facts.prompt_chars == (3 if depth < 8 and leaf == b'"abc"' else 0)


def test_the_newer_name_of_the_limit_wins() -> None:
    assert read(CHAT, {"max_tokens": 5, "max_completion_tokens": 7}).max_tokens == 7


@pytest.mark.parametrize("body", [b"", b"nope", b"\xff\xfe", b"[]", b"7", b"null", b"[" * 100_000, b'{"a":' * 100_000])
def test_what_is_no_request_gives_no_facts(body: bytes) -> None:
    facts = read(CHAT, body)
    assert (facts.complete, facts.model, facts.stream, facts.max_tokens) == (False, "", None, None)


def test_other_paths_and_forms() -> None:
    assert read_request("/v1/models", "", b"{}") is None


@pytest.mark.parametrize(
    ("said", "model"),
    [
        ('"llama"', "llama"),
        ("null", ""),
        ('""', ""),
        ("5", "other"),
        ("true", "other"),
        ('["llama"]', "other"),
        ('{"name":"llama"}', "other"),
        (json.dumps("m" * 257), "other"),
        (json.dumps("m" * 100_000), "other"),
        ('"m\\u0007"', "m\a"),
        ('"\\ud800"', "?"),
        ('"x","model":"llama"', "llama"),  # as servers read it
        ('"llama","model":7', "other"),
    ],
)
def test_a_model_that_is_no_name_is_not_the_default_model(said: str, model: str) -> None:
    assert read(CHAT, b'{"messages":[],"model":' + said.encode() + b"}").model == model


def test_a_form_is_none_of_what_we_read_but_json_that_is_called_one_is() -> None:
    form = b'--x\r\nContent-Disposition: form-data; name="prompt"\r\n\r\nhello\r\n--x--\r\n'
    assert read("/v1/completions", form).complete is False


PACKERS = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress, "zstd": zstandard.compress}


@pytest.mark.parametrize("encoding", PACKERS)
def test_compressed_bodies_are_inflated_up_to_a_limit(encoding: str) -> None:
    body = json.dumps({"model": "llama", "messages": [{"content": "abc"}]}).encode()
    packed = PACKERS[encoding](body)
    assert read(CHAT, packed, encoding=encoding).prompt_chars == 3
    bomb = PACKERS[encoding](b'{"model":"llama","x":"' + b" " * MAX_INFLATED_BYTES + b'"}')
    facts = read(CHAT, bomb, encoding=encoding)
    assert (facts.model, facts.complete) == ("llama", False)
    long = PACKERS[encoding](b'{"model":"llama","prompt":"' + b"x" * 5000 + b'"}')
    cut = read_request("/v1/completions", encoding, long, most_inflated=2000)
    assert cut is not None
    assert (cut.prompt_chars, cut.complete) == (2000 - len(b'{"model":"llama","prompt":"'), False)


HELLO = b'{"model":"llama","messages":[{"role":"user","content":"hello"}]}'


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "foo", "gzip, gzip", "identity", "x" * 128, ","])
def test_a_coding_that_is_announced_and_not_there_hides_nothing(encoding: str) -> None:
    facts = read(CHAT, HELLO, encoding=encoding)
    assert (facts.model, facts.prompt_chars, facts.complete) == ("llama", 5, True)


@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
def test_json_in_another_encoding_is_read_as_python_reads_it(encoding: str) -> None:
    body = HELLO.decode().encode(encoding)
    assert json.loads(body) == json.loads(HELLO)
    facts = read(CHAT, body)
    assert (facts.model, facts.prompt_chars, facts.complete) == ("llama", 5, True)


def test_members_are_found_however_they_are_written() -> None:
    body = b' \n{"mod\\u0065l":"llama", "mess\\u0061ges" : [{"content":"hel\\u006co"}]} '
    facts = read(CHAT, body)
    assert (facts.model, facts.prompt_chars) == ("llama", 5)
    twice = b'{"messages":[{"content":"short"}],"messages":[{"content":"the longer one"}]}'
    assert read(CHAT, twice).prompt_chars == len(json.loads(twice)["messages"][0]["content"])


@pytest.mark.parametrize("encoding", ["gzip, gzip", "gzip, identity, br"])
def test_of_several_codings_none_is_undone(encoding: str) -> None:
    """What is left is noise, different with each moment in gzip's head: read as JSON with no text, or not at all."""
    for moment in range(0, 2**32, 2**32 // 50):
        facts = read(CHAT, gzip.compress(gzip.compress(HELLO, mtime=moment), mtime=moment), encoding=encoding)
        assert not facts.complete
        assert not facts.prompt_chars


def test_gzip_in_a_few_members_is_read_and_in_many_empty_ones_is_not() -> None:
    assert read(CHAT, gzip.compress(HELLO[:20]) + gzip.compress(HELLO[20:]), encoding="gzip").prompt_chars == 5
    assert not read(CHAT, gzip.compress(b"") * 100_000 + gzip.compress(HELLO), encoding="gzip").complete


def test_a_prompt_with_too_much_in_it_counts_by_its_size() -> None:
    many = b'{"model":"llama","stream":true,"max_tokens":7,"messages":[' + b"{}," * 40_000 + b"{}]}"
    facts = read(CHAT, many)
    assert (facts.model, facts.stream, facts.max_tokens, facts.complete) == ("llama", True, 7, False)
    assert facts.prompt_chars == 120_004
    parts = read(CHAT, b'{"messages":[{"content":[' + b"{}," * 40_000 + b"{}]}]}")
    assert (parts.complete, (parts.prompt_chars or 0) > 120_000) == (False, True)


def test_text_full_of_brackets_and_commas_has_nothing_much_in_it() -> None:
    code = 'if (x["a"] == {1, 2}) { return f(a, [b]); }\n' * 20_000
    facts = read(CHAT, {"messages": [{"role": "user", "content": code}]})
    assert (facts.prompt_chars, facts.complete) == (len(code), True)


def test_token_ids_are_counted_however_many_they_are() -> None:
    ids = list(range(100, 140_000))
    flat = read("/v1/completions", {"prompt": ids})
    assert (flat.prompts, flat.prompt_tokens, flat.complete, len(flat.prefix)) == (1, len(ids), True, 512)
    assert flat.prefix[:300] == read("/v1/completions", {"prompt": ids[: 64 * 300]}).prefix
    lists = read("/v1/completions", {"prompt": [ids, ids[:5], ids[:50_000]]})
    assert (lists.prompts, lists.prompt_tokens) == (3, len(ids) + 50_005)
    assert lists.prefix == flat.prefix
    odd = read("/v1/completions", b'{"prompt":[1,' + b'{"a":1},' * 40_000 + b"1]}")
    assert (odd.prompt_tokens, odd.complete) == (None, False)


def test_a_prompt_as_embeddings_is_no_prompt_without_size() -> None:
    facts = read("/v1/completions", {"prompt_embeds": "A" * 1000, "max_tokens": 5})
    assert (facts.media, facts.prompt_chars) == (1, 0)


@pytest.mark.parametrize(
    ("body", "model", "stream"),
    [
        (b'{"model":"llama","stream":true,"messages":[{"content":"' + b"x" * 100_000, "llama", True),
        (b'{"messages":[{"content":"' + b"x" * 100_000 + b'"}],"model": "llama" ,"stream" : false}', "llama", False),
        (b'{"messages":[{"content":"\\"model\\":\\"no\\"' + b"x" * 100_000 + b'"}]}', "", None),
        (b'{"model":7,"x":"' + b"x" * 100_000, "other", None),
        (b'{"model":"a","x":1}', "a", None),
        (b'{"model":"' + b"m" * 5000, "", None),
        (b"", "", None),
    ],
)
def test_a_glance_at_the_ends_tells_the_model(body: bytes, model: str, stream: bool | None) -> None:
    assert glance(body) == (model, stream)


def test_the_beginning_of_a_body_tells_what_it_can() -> None:
    body = json.dumps(
        {"model": "llama", "stream": True, "messages": [{"role": "user", "content": "x" * 5000}]}
    ).encode()
    facts = read(CHAT, body[:2000], complete=False)
    assert (facts.model, facts.stream, facts.complete) == ("llama", True, False)
    assert facts.prompt_chars == 2000 - body.index(b"xxx")
    assert read(CHAT, body[:5], complete=False).stream is None


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=40), data=st.data())
def test_every_beginning_of_a_body_agrees_with_the_whole(text: str, data: st.DataObject) -> None:
    body = {
        "model": text or "m",
        "n": 12,
        "messages": [{"content": text}, {"content": [{"text": text}]}],
        "stream": True,
    }
    whole = json.dumps(body, ensure_ascii=data.draw(st.booleans())).encode()
    expected = read(CHAT, whole)
    for end in range(len(whole)):
        facts = read(CHAT, whole[:end], complete=False)
        assert not facts.complete
        assert expected.model.startswith(facts.model)
        assert facts.choices in (1, 12)
        assert facts.stream in (None, True)
        assert (facts.prompt_chars or 0) <= (expected.prompt_chars or 0)


def test_prompts_with_the_same_beginning_share_digests() -> None:
    def prefix(*contents: str) -> tuple[int, ...]:
        return read(CHAT, {"model": "m", "messages": [{"role": "user", "content": text} for text in contents]}).prefix

    shared = "common " * 200
    one, two = prefix(shared + "a" * 600), prefix(shared + "b" * 600)
    same = [left == right for left, right in zip(one, two, strict=True)]
    assert same == [True] * 5 + [False] * (len(one) - 5)
    assert prefix(shared, "more " * 300)[:5] == one[:5]
    assert prefix("short") == ()
    assert len(prefix("x" * 1_000_000)) == 512


def test_images_are_part_of_the_beginning() -> None:
    def prefix(image: str) -> tuple[int, ...]:
        part = {"type": "image_url", "image_url": {"url": image}}
        content = [{"type": "text", "text": "a" * 300}, part, {"type": "text", "text": "b" * 900}]
        return read(CHAT, {"messages": [{"role": "user", "content": content}]}).prefix

    assert prefix("data:one") == prefix("data:one")
    assert prefix("data:one")[0] == prefix("data:two")[0]
    assert prefix("data:one")[1:] != prefix("data:two")[1:]


def test_prompts_as_token_ids_have_digests_too() -> None:
    one = read("/v1/completions", {"prompt": list(range(200))}).prefix
    two = read("/v1/completions", {"prompt": [*range(100), *range(100)]}).prefix
    assert len(one) == 3
    assert [left == right for left, right in zip(one, two, strict=True)] == [True, False, False]


def test_a_lone_surrogate_in_a_prompt_does_no_harm() -> None:
    facts = read(CHAT, b'{"model":"m","messages":[{"content":"\\ud800' + b"x" * 600 + b'"}]}')
    assert (facts.prompt_chars, len(facts.prefix)) == (601, 2)


@pytest.mark.parametrize(
    ("path", "body", "chars", "tokens", "sequences"),
    [
        ("/completion", {"prompt": "x" * 40, "n_predict": 8}, 40, None, 1),
        ("/completion", {"prompt": [[1, 2, 3], [4, 5]]}, 0, 5, 2),
        ("/infill", {"input_prefix": "ab", "input_suffix": "cde"}, 5, None, 1),
        ("/generate", {"text": ["abcd", "ef"], "sampling_params": {}}, 6, None, 2),
        ("/generate", {"input_ids": [7] * 30}, 0, 30, 1),
        ("/generate_stream", {"inputs": "abc", "parameters": {}}, 3, None, 1),
        ("/inference/v1/generate", {"token_ids": [5] * 20_000, "sampling_params": {}}, 0, 20_000, 1),
        ("/v1/chat/completions/batch", {"messages": [[{"role": "user", "content": "abcd"}]] * 3}, 12, None, 3),
        ("/cohere/v2/chat", {"messages": [{"role": "user", "content": "abcd"}]}, 4, None, 1),
        ("/api/chat", {"messages": [{"role": "user", "content": "abcd"}]}, 4, None, 1),
        ("/api/generate", {"prompt": "abcdef"}, 6, None, 1),
        ("/v1/embeddings", {"input": ["abc", "de"]}, 5, None, 1),
        ("/v1/embeddings", {"input": [[1, 2], [3]]}, 0, 3, 1),
        ("/v1/embeddings", {"messages": [{"role": "user", "content": "abcd"}]}, 4, None, 1),
        ("/v1/score", {"text_1": "ab", "text_2": ["cd", "efg"]}, 7, None, 1),
        ("/v1/score", {"query": "ab", "items": ["cd"] * 10, "label_token_ids": [1]}, 22, None, 1),
        ("/rerank", {"query": "ab", "documents": ["cd", "e"]}, 5, None, 1),
        ("/classify", {"input": "abc"}, 3, None, 1),
    ],
)
def test_prompts_of_other_endpoints(
    path: str, body: dict[str, Any], chars: int, tokens: int | None, sequences: int
) -> None:
    facts = read_request(path, "", json.dumps(body).encode())
    assert facts is not None
    assert (facts.prompt_chars, facts.prompt_tokens, facts.prompts, facts.complete) == (chars, tokens, sequences, True)


def test_what_reads_only_owes_no_tokens() -> None:
    """An answer without text is no empty one."""
    for path in ("/v1/embeddings", "/v1/score", "/rerank"):
        facts = read_request(path, "", b'{"input": "a"}')
        assert facts is not None
        assert facts.max_tokens == 0


def test_a_recording_to_be_written_down_has_no_size_in_tokens() -> None:
    form = (
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n'
        b'--b\r\nContent-Disposition: form-data; name="stream"\r\n\r\ntrue\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + bytes(200_000) + b"\r\n--b--\r\n"
    )
    facts = read_request("/v1/audio/transcriptions", "", form)
    assert facts is not None
    assert (facts.model, facts.stream, facts.prompt_chars, facts.media) == ("whisper", True, 0, 1)
