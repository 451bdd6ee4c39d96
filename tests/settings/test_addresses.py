"""Addresses in text."""

from __future__ import annotations

import pytest

from prefillwatch.settings.addresses import (
    ListenAddress,
    is_same_place,
    page_place,
    parse_collector,
    parse_listen,
    parse_page_address,
    parse_upstream,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", ListenAddress("127.0.0.1", 8080)),
        ("localhost:0", ListenAddress("localhost", 0)),
        ("[::1]:8080", ListenAddress("::1", 8080)),
        ("[0:0:0:0:0:0:0:1]:8080", ListenAddress("::1", 8080)),
        (":8080", ListenAddress("0.0.0.0", 8080)),
        (" 0.0.0.0:80 ", ListenAddress("0.0.0.0", 80)),
    ],
)
def test_listen_addresses(text: str, address: ListenAddress) -> None:
    assert parse_listen(text) == address


@pytest.mark.parametrize(
    "text", ["", "8080", "host:", "host:http", "::1:80", "[::1:80", "[x]:80", "a/b:80", "a b:80", "h:٣"]
)
def test_other_text_is_no_listen_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address to listen on; write HOST:PORT"):
        parse_listen(text)


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("127.0.0.1:80", "127.0.0.1:80", True),
        ("0.0.0.0:80", "127.0.0.1:80", True),
        ("10.0.0.1:80", ":80", True),
        ("[::]:80", "0.0.0.0:80", True),
        ("127.0.0.1:80", "10.0.0.1:80", False),
        ("127.0.0.1:80", "127.0.0.1:81", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
    ],
)
def test_addresses_that_cannot_both_be_listened_on(one: str, other: str, overlap: bool) -> None:
    assert parse_listen(one).overlaps(parse_listen(other)) is overlap


@pytest.mark.parametrize(
    ("upstream", "listen", "same"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8080", True),
        ("http://localhost:8080", "0.0.0.0:8080", True),
        ("http://[::1]:8080", "[::]:8080", True),
        ("https://vllm.example", "vllm.example:443", True),
        ("http://vllm.example", "vllm.example:80", True),
        ("http://10.0.0.1:8080", "127.0.0.1:8080", False),
        ("http://127.0.0.1:8000", "127.0.0.1:8080", False),
        ("http://127.0.0.1:8080", "127.0.0.1:0", False),
        ("unix:/run/vllm.sock", "127.0.0.1:80", False),
    ],
)
def test_an_upstream_where_we_listen_ourselves(upstream: str, listen: str, same: bool) -> None:
    assert is_same_place(upstream, parse_listen(listen)) is same


@pytest.mark.parametrize("text", ["127.0.0.1:8080", "[::1]:8080", "0.0.0.0:80"])
def test_an_address_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_listen(text)) == text


@pytest.mark.parametrize(
    ("text", "reachable"), [("0.0.0.0:80", "127.0.0.1:80"), ("[::]:80", "[::1]:80"), ("10.0.0.1:80", "10.0.0.1:80")]
)
def test_every_interface_is_reached_by_loopback(text: str, reachable: str) -> None:
    assert str(parse_listen(text).reachable) == reachable


@pytest.mark.parametrize(
    ("text", "upstream"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("https://vllm.example", "https://vllm.example"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("HTTP://Host:80", "http://host:80"),
        ("unix:/run/vllm.sock", "unix:/run/vllm.sock"),
        ("unix:///run/vllm.sock", "unix:/run/vllm.sock"),
    ],
)
def test_upstreams(text: str, upstream: str) -> None:
    assert parse_upstream(text) == upstream


@pytest.mark.parametrize(
    "text", ["", "ftp://x", "http://", "http://h:99999", "http://h:x", "http://h?q=1", "http://h/#f", "127.0.0.1"]
)
def test_other_text_is_no_upstream(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|use"):
        parse_upstream(text)


@pytest.mark.parametrize(
    ("text", "server", "path"),
    [
        ("/prometheus/metrics", "http://a:8000", "/prometheus/metrics"),
        ("/metrics?model=m", "http://a:8000", "/metrics?model=m"),
        (" http://node:8080/metrics ", "http://node:8080", "/metrics"),
        ("https://[::1]:9/v1/metrics?x=1", "https://[::1]:9", "/v1/metrics?x=1"),
        ("http://a:8000/metrics/", "http://a:8000", "/metrics/"),
    ],
)
def test_where_a_page_lies(text: str, server: str, path: str) -> None:
    assert page_place("http://a:8000", parse_page_address(text)) == (server, path)


def test_a_page_lies_at_metrics_unless_told() -> None:
    assert page_place("unix:/run/vllm.sock", "") == ("unix:/run/vllm.sock", "/metrics")


@pytest.mark.parametrize(
    "text",
    ["", "metrics", "ftp://a/metrics", "//a/metrics", "http://a:8080", "http://a:8080/", "http://u:p@a/m", "/a b",
     "http:///metrics", "http://a:0/metrics", "/m#x"],
)  # fmt: skip
def test_other_text_is_no_address_of_a_page(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|credentials|use 1 to"):
        parse_page_address(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://collector:4318", "http://collector:4318"),
        ("http://collector:4318/", "http://collector:4318"),
        ("https://[::1]:4318/otlp/", "https://[::1]:4318/otlp"),
        (" http://prometheus:9090/api/v1/otlp ", "http://prometheus:9090/api/v1/otlp"),
    ],
)
def test_where_otlp_goes(text: str, address: str) -> None:
    assert parse_collector(text) == address


@pytest.mark.parametrize(
    "text",
    [
        *(
            "collector:4318",
            "grpc://collector:4317",
            "http://",
            "http://a b",
            "http://a/?x=1",
            "http://a/#x",
            "http://ä",
        ),
        *("http://user:secret@collector:4318", "http://collector:99999", "http://collector:4318/v1/metrics", ""),
    ],
)
def test_other_text_is_no_place_for_otlp(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|credentials|port|leave"):
        parse_collector(text)
