from __future__ import annotations

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
        "/v1/chat/completions/batch",
        "/v1/chat/completions/render",
        "/v1/responses/resp_1",
        "/xcompletions",
    ],
)
def test_everything_else_is_other(path: str) -> None:
    assert endpoint_of(path) == "other"


def test_made_up_paths_add_no_names() -> None:
    found = {endpoint_of(f"/v1/{number}/{'x' * (number % 50)}?q={number}") for number in range(2000)}
    assert found == {"other"}
    assert len(ENDPOINTS) < 20
