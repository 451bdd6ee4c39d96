"""What upstream is told of the client, by each way of treating the client's own words."""

from __future__ import annotations

import pytest

from prefillwatch.relay.forwarding import request_head
from prefillwatch.relay.hops import Forwarded, Hop, peer_of
from prefillwatch.relay.http_head import parse_request

PEER = b"10.0.0.7"
CLAIMS = (
    b"X-Forwarded-For: 6.6.6.6\r\nX-FORWARDED-FOR: 7.7.7.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: bank\r\n"
    b"X-Forwarded-Port: 443\r\nX-Real-IP: 6.6.6.6\r\nForwarded: for=6.6.6.6;proto=https\r\n"
)


def sent(mode: Forwarded, lines: bytes = b"", *, keep_host: bool = True, **hop: object) -> list[bytes]:
    """The lines about the client that upstream gets."""
    request = parse_request(b"GET / HTTP/1.1\r\nHost: a\r\n%b\r\n" % lines)
    given = Hop(mode, **({"peer": PEER} | hop))  # type: ignore[arg-type]
    head = request_head(request, b"vllm", keep_host=keep_host, hop=given)
    return head.split(b"\r\n")[2:-2]


def test_by_default_upstream_sees_what_it_would_see_without_us() -> None:
    ours = [b"X-Forwarded-For: 10.0.0.7", b"X-Forwarded-Proto: http"]
    assert sent("replace") == ours
    assert sent("replace", CLAIMS) == ours
    assert sent("replace", CLAIMS, tls=True) == [ours[0], b"X-Forwarded-Proto: https"]


def test_behind_a_proxy_that_is_trusted_one_more_address_is_added_in_one_line() -> None:
    assert sent("append") == [b"X-Forwarded-For: 10.0.0.7", b"X-Forwarded-Proto: http"]
    assert sent("append", CLAIMS) == [
        b"X-Forwarded-Proto: https",
        b"X-Forwarded-Host: bank",
        b"X-Forwarded-Port: 443",
        b"X-Real-IP: 6.6.6.6",
        b"Forwarded: for=6.6.6.6;proto=https",
        b"X-Forwarded-For: 6.6.6.6, 7.7.7.7, 10.0.0.7",
        b"Forwarded: for=10.0.0.7;proto=http",
    ]


def test_all_can_be_passed_on_as_it_came_or_taken_away() -> None:
    assert sent("pass", CLAIMS) == CLAIMS.split(b"\r\n")[:-1]
    assert sent("pass") == sent("drop") == sent("drop", CLAIMS) == []


def test_a_host_that_is_replaced_is_told_beside_it() -> None:
    assert b"X-Forwarded-Host: a" in sent("replace", keep_host=False)
    assert b"X-Forwarded-Host: bank" in sent("append", CLAIMS, keep_host=False)
    assert b"X-Forwarded-Host: a" in sent("append", keep_host=False)


def test_lines_of_the_same_family_that_are_no_claims_about_the_hop_stay() -> None:
    lines = b"X-Forwarded-User: ann\r\nX-Forwarded-Prefix: /llm\r\n"
    assert sent("replace", lines)[:2] == lines.split(b"\r\n")[:-1]


def test_an_ipv6_client_in_both_notations() -> None:
    lines = sent("append", b"Forwarded: for=1.1.1.1\r\n", peer=b"2001:db8::1")
    assert lines[1] == b"X-Forwarded-For: 2001:db8::1"
    assert lines[-1] == b'Forwarded: for="[2001:db8::1]";proto=http'


def test_a_client_without_an_address() -> None:
    assert sent("append", b"X-Forwarded-For: 1.1.1.1\r\n", peer=b"") == [
        b"X-Forwarded-For: 1.1.1.1",
        b"X-Forwarded-Proto: http",
    ]
    assert sent("replace", peer=b"") == [b"X-Forwarded-Proto: http"]


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (("10.0.0.7", 1), b"10.0.0.7"),
        (("::ffff:10.0.0.7", 1, 0, 0), b"10.0.0.7"),
        (("::1", 1, 0, 0), b"::1"),
        (("fe80::1%eth0", 1, 0, 2), b"fe80::1"),
        ("", b""),
        (b"", b""),
    ],
)
def test_addresses_of_sockets(address: object, peer: bytes) -> None:
    assert peer_of(address) == peer


def test_via_is_added_to_what_others_wrote_and_found_again() -> None:
    hop = Hop(name=b"prefillwatch-1a2b")
    first = request_head(parse_request(b"GET / HTTP/1.0\r\nVia: 1.1 lb\r\n\r\n"), b"vllm", keep_host=True, hop=hop)
    assert first.endswith(b"\r\nVia: 1.1 lb\r\nVia: 1.0 prefillwatch-1a2b\r\n\r\n")
    assert hop.was_here(parse_request(first))
    assert not hop._replace(name=b"prefillwatch-ffff").was_here(parse_request(first))
    assert not hop._replace(name=b"").was_here(parse_request(first))
