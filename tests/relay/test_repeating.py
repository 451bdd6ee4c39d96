"""Which requests may be sent again, by what they are. The connections under them are in test_reuse."""

from __future__ import annotations

import pytest

from prefillwatch.relay.http_head import parse_request
from prefillwatch.relay.repeating import Repeat, repeat_of


@pytest.mark.parametrize(
    ("line", "repeat"),
    [
        ("GET /v1/models", Repeat.ALWAYS),
        ("HEAD /", Repeat.ALWAYS),
        ("PUT /v1/files/1", Repeat.ALWAYS),
        ("DELETE /v1/responses/1", Repeat.ALWAYS),
        ("POST /v1/chat/completions", Repeat.UNREAD),
        ("POST /v1/completions?x=1", Repeat.UNREAD),
        ("POST /llm/v1/chat/completions", Repeat.UNREAD),
        ("POST /v1/messages", Repeat.UNREAD),
        ("POST /v1/responses", Repeat.NEVER),
        ("POST /v1/threads/t/messages", Repeat.NEVER),
        ("POST /llm/v1/messages", Repeat.NEVER),
        ("POST /chat/completions", Repeat.NEVER),
        ("POST /v1/embeddings", Repeat.NEVER),
        ("PATCH /v1/chat/completions", Repeat.NEVER),
    ],
)
def test_by_method_and_path(line: str, repeat: Repeat) -> None:
    assert repeat_of(parse_request(f"{line} HTTP/1.1\r\nHost: a\r\n\r\n".encode())) is repeat
