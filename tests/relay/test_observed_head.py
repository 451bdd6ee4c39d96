"""What the observer is told of a request."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefillwatch.relay.http_head import parse_request
from prefillwatch.relay.observed_head import observed_request, sender_by
from prefillwatch.settings.declared import DEFAULTS
from prefillwatch.settings.sources import load
from prefillwatch.settings.views import relay_view
from prefillwatch.wire.routes import endpoint_of
from prefillwatch.wire.sender import TenantIds
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


def sent_by(headers: str, **flags: str) -> tuple[str, int | None]:
    """Name and priority, and nothing else of the headers, in what is told with these settings."""
    settings = relay_view(load({"tenant_key_file": str(KEY_FILE), **flags}, {}), upstream="http://u", listen_fds=())
    request = parse_request(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode("latin-1"))
    head = observed_request(request, 0, sender_by(settings))
    assert b"Geheimnis" not in encode_payload(head) or flags.get("tenant_names") == "plain"
    return head.tenant, head.priority


#: Of one line.
KEY_FILE = Path(__file__).parents[1] / "data/config/tenant.key"
IDS = TenantIds("of this test")
HEADERS = (
    "X-Tenant: Geheimnis-acme\r\nAuthorization: Bearer sk-Geheimnis\r\nX-Vllm-Priority: -7\r\nCookie: Geheimnis=1\r\n"
)


def test_nobody_is_named_where_nobody_asks() -> None:
    assert sender_by(relay_view(DEFAULTS, upstream="http://u", listen_fds=())) is None
    assert sent_by(HEADERS) == ("", None)


@pytest.mark.parametrize("name", ["X-Tenant", "x-tenant"])
def test_a_tenant_by_header_is_a_hash_of_it(name: str) -> None:
    assert sent_by(HEADERS, tenant_header=name) == (IDS("Geheimnis-acme"), None)


def test_a_tenant_by_credential_is_a_hash_of_it() -> None:
    assert sent_by(HEADERS, tenant_from="api_key_id") == (IDS("sk-Geheimnis"), None)
    assert sent_by("", tenant_from="api_key_id") == ("", None)


def test_a_tenant_by_the_body_is_left_to_who_reads_bodies() -> None:
    assert sent_by(HEADERS, tenant_from="user") == ("", None)


def test_plain_names_are_told_where_they_are_asked_for() -> None:
    assert sent_by(HEADERS, tenant_header="X-Tenant", tenant_names="plain")[0] == "Geheimnis-acme"


def test_the_priority_is_told_where_it_is_asked_for() -> None:
    assert sent_by(HEADERS, priorities="true") == ("", -2)
    assert sent_by("X-Vllm-Priority: high\r\n", priorities="true") == ("", None)


def test_a_header_that_comes_twice_is_told_by_its_first() -> None:
    assert sent_by("X-Tenant: a\r\nX-Tenant: b\r\n", tenant_header="X-Tenant")[0] == IDS("a")


def test_without_a_key_names_are_those_of_this_process() -> None:
    settings = relay_view(load({"tenant_header": "x-tenant"}, {}), upstream="http://u", listen_fds=())
    request = parse_request(b"GET / HTTP/1.1\r\nHost: x\r\nX-Tenant: acme\r\n\r\n")
    one, other = sender_by(settings), sender_by(settings)
    assert one is not None
    assert other is not None
    assert one(request) == one(request) != other(request)
