"""What the observer is told of a request."""

from __future__ import annotations

import pytest

from prefillwatch.relay.http_head import parse_request
from prefillwatch.relay.observed_head import observed_request
from prefillwatch.wire.routes import endpoint_of
from prefillwatch.wire.tap import encode_payload


def told(target: str) -> str:
    return observed_request(parse_request(f"POST {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode("latin-1")), 0).path


def test_a_path_is_told_as_it_came() -> None:
    assert told("/v1/chat/%63ompletions?key=secret") == "/v1/chat/%63ompletions"


@pytest.mark.parametrize(
    "target",
    [
        "/v1/chat" + "/" * 20_000 + "completions",
        "/v1/chat/completions" + "/." * 500,
        "/prefix" * 5000 + "/v1/completions",
        "/" + "%61" * 300 + "/v1/chat/%63%6f%6d%70%6c%65%74%69%6f%6e%73",
        "/nowhere" * 5000,
    ],
)
def test_a_long_path_is_told_by_a_short_one_to_the_same_endpoint(target: str) -> None:
    path = told(target)
    assert endpoint_of(path) == endpoint_of(target)
    assert len(path) <= 512


def test_no_header_makes_what_is_told_long() -> None:
    long = "x" * 10_000
    head = (
        f"POST /{long} HTTP/1.1\r\nHost: x\r\nContent-Type: {long}\r\nContent-Encoding: {long}\r\n"
        f"X-Request-Id: {long}\r\nX-SLO-TTFT-MS: {'9' * 10_000}\r\n\r\n"
    )
    assert len(encode_payload(observed_request(parse_request(head.encode()), 0))) < 2000


def traceparent(*values: str) -> str:
    lines = "".join(f"Traceparent: {value}\r\n" for value in values)
    return observed_request(parse_request(f"POST / HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode()), 0).traceparent


def test_the_trace_of_a_request_is_told_unless_it_has_two() -> None:
    assert traceparent() == ""
    assert traceparent("00-ab-cd-01") == "00-ab-cd-01"
    assert traceparent("00-ab-cd-01", "00-ab-cd-01") == ""
    assert traceparent("x" * 10_000) == "x" * 128
