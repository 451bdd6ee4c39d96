from __future__ import annotations

import time

import pytest

from prefillwatch.wire.routes import ENDPOINTS, endpoint_of


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [
        ("/v1/chat/completions", "chat_completions"),
        ("/v1/chat/completions/", "chat_completions"),
        ("/v1/chat/completions?api-version=3", "chat_completions"),
        ("/openai/deployments/llama/chat/completions", "chat_completions"),
        ("/v1/completions", "completions"),
        ("/v1/responses", "responses"),
        ("/v1/messages", "messages"),
        ("/anthropic/v1/messages", "messages"),
        ("/v1/messages/count_tokens", "tokenize"),
        ("/v1/embeddings", "embeddings"),
        ("/v1/models", "models"),
        ("/metrics", "metrics"),
        ("/health", "health"),
        ("/tokenize", "tokenize"),
        ("/v1/audio/transcriptions", "audio"),
        ("/v1/audio/speech", "audio"),
        ("/v1/chat/completions/batch", "chat_completions"),
        ("/cohere/v2/chat", "cohere_chat"),
        ("/completion", "native"),
        ("/infill", "native"),
        ("/generate", "native"),
        ("/generate_stream", "native"),
        ("/inference/v1/generate", "native"),
        ("/api/chat", "native"),
        ("/api/generate", "native"),
        ("/api/embed", "embeddings"),
        ("/generative_scoring", "score"),
    ],
)
def test_known_routes_are_recognised_under_any_prefix(path: str, endpoint: str) -> None:
    assert endpoint_of(path) == endpoint


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/v1",
        "/v1/chat/completions/render",
        "/v1/responses/resp_1",
        "/xcompletions",
    ],
)
def test_everything_else_is_other(path: str) -> None:
    assert endpoint_of(path) == "other"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/%63ompletions",
        "/v1/chat%2fcompletions",
        "/%76%31/%63%68%61%74/%63%6F%6d%70%6c%65%74%69%6f%6e%73",
        "/v1/chat/%2563ompletions",
        "/v1//chat///completions//",
        "/v1/chat/./completions/.",
        "/v1/chat/x/../completions",
        "/v1/chat/x/%2e%2E/completions",
        "/v1/chat/completions;a=b",
        "/v1/chat;a/completions",
        "/v1/chat/completions#x",
        "/v1/chat/completions#x?y",
        "\\v1\\chat\\completions",
        "/V1/Chat/COMPLETIONS",
        "/v1/chat/%43OMPLETIONS",
        "http://host/v1/chat/%63ompletions?x=%2f",
        "/" * 60_000 + "v1/chat" + "/" * 60_000 + "completions" + "/" * 60_000,
    ],
)
def test_a_path_written_oddly_is_what_some_server_takes_it_for(path: str) -> None:
    assert endpoint_of(path) == "chat_completions"


@pytest.mark.parametrize(
    "path",
    ["/v1/chat/completions%3Fx", "/v1/chat/completions/..", "/%", "/%zz", "/..", "/.%2f..", "%", ";", "/;", "\\"],
)
def test_an_odd_path_to_nowhere_is_other(path: str) -> None:
    assert endpoint_of(path) == "other"


def test_an_odd_path_of_any_length_is_cheap() -> None:
    # Work, not time: what is decoded has a bound, whatever the length of the path.
    for piece in ("%63", "/..", "/.", "//", ";", "a/", "\\"):
        began = time.process_time()
        for _ in range(20):
            endpoint_of(piece * 20_000)
        assert time.process_time() - began < 20


def test_made_up_paths_add_no_names() -> None:
    found = {endpoint_of(f"/v1/{number}/{'x' * (number % 50)}?q={number}") for number in range(2000)}
    assert found == {"other"}
    assert len(ENDPOINTS) < 30
