"""Ids as vLLM makes them of what clients send, and as clients and streams have them."""

from __future__ import annotations

import pytest

from prefillwatch.analysis.requests.request import Request
from prefillwatch.core.engine_ids import find


def request(request_id: str, rid: int = 1) -> Request:
    return Request(rid=rid, endpoint="chat_completions", received_ns=0, model=0, generating=True, request_id=request_id)


@pytest.mark.parametrize(
    ("ours", "engines"),
    [
        ("chatcmpl-8f3a", "chatcmpl-8f3a"),  # drawn by vLLM, read from the stream
        ("trace-7", "chatcmpl-trace-7"),
        ("trace-7", "cmpl-trace-7-0"),
        ("cmpl-8f3a", "cmpl-8f3a-0"),
        ("trace-7", "resp_trace-7"),
    ],
)
def test_one_request_under_two_names(ours: str, engines: str) -> None:
    wanted = request(ours)
    assert find([request("other"), wanted, request("")], engines) is wanted


def test_who_is_not_there_is_not_found() -> None:
    assert find([request("trace-7"), request("")], "chatcmpl-trace-70") is None
    assert find([request("")], "") is None
    assert find([request("")], "chatcmpl-") is None


def test_an_id_that_a_client_uses_twice_means_neither() -> None:
    assert find([request("same", 1), request("same", 2)], "chatcmpl-same") is None
    once = request("once")
    assert find([once, once], "chatcmpl-once") is once
