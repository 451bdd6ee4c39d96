"""An upstream that is ourselves, however it is written."""

from __future__ import annotations

import socket
import threading

import pytest

from prefillwatch.errors import ConfigError
from prefillwatch.settings.sources import load
from prefillwatch.supervision import own_address
from prefillwatch.supervision.own_address import addresses_of, refuse_own_address


def resolving(monkeypatch: pytest.MonkeyPatch, **names: list[str]) -> None:
    """Names of the test's own beside those of the system."""
    known = {name.replace("_", "."): addresses for name, addresses in names.items()}
    original = socket.getaddrinfo

    def answer(host: str, *args: object, **options: object) -> object:
        if host not in known:
            return original(host, *args, **options)  # type: ignore[arg-type]
        return [(socket.AF_INET6 if ":" in a else socket.AF_INET, 1, 6, "", (a, 0)) for a in known[host]]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


def refused(listen: str, upstream: str, admin: str = "127.0.0.1:9") -> str:
    """What is said; empty for an upstream that is none of ours."""
    try:
        refuse_own_address(load({"listen": listen, "admin": admin}, {}), upstream)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("listen", "upstream"),
    [
        ("127.0.0.1:8080", "http://127.1:8080"),
        ("127.0.0.1:8080", "http://2130706433:8080"),
        ("127.0.0.1:8080", "http://0.0.0.0:8080"),
        ("127.0.0.1:8080", "http://[::ffff:127.0.0.1]:8080"),
        ("0.0.0.0:8080", "http://127.0.0.9:8080"),
        ("[::1]:8080", "http://[::]:8080"),
        ("[::]:8080", "http://127.0.0.1:8080"),
        ("0.0.0.0:80", "http://127.1"),
        ("0.0.0.0:443", "https://127.1"),
    ],
)
def test_other_spellings_of_ourselves_are_refused(listen: str, upstream: str) -> None:
    assert f"--listen {listen}" in refused(listen, upstream)


def test_the_machines_own_name_and_one_with_several_addresses_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, me=["127.0.1.1"], vllm_example=["192.0.2.1", "::1", "127.0.0.1"])
    assert "127.0.1.1:8080" in refused("0.0.0.0:8080", "http://me:8080")
    assert "127.0.0.1:8080" in refused("127.0.0.1:8080", "http://vllm.example:8080")
    assert "::1:8080" in refused("[::]:8080", "http://vllm.example:8080")


def test_the_admin_address_is_one_of_ours_too() -> None:
    assert "--admin 127.0.0.1:9843" in refused("127.0.0.1:8080", "http://127.1:9843", admin="127.0.0.1:9843")


@pytest.mark.parametrize(
    ("listen", "upstream"),
    [
        ("127.0.0.1:8080", "http://127.1:8000"),
        ("127.0.0.2:8080", "http://127.0.0.1:8080"),  # another server on another address of this machine
        ("0.0.0.0:8080", "http://192.0.2.1:8080"),  # not of this machine
        ("0.0.0.0:8080", "http://[::1]:8080"),
        ("127.0.0.1:0", "http://127.1:8080"),
        ("127.0.0.1:8080", "unix:/run/vllm.sock"),
        ("127.0.0.1:8080", "http://no-such-host.invalid:8080"),
    ],
)
def test_others_are_not(listen: str, upstream: str) -> None:
    assert refused(listen, upstream) == ""


def test_a_name_server_that_is_silent_does_not_keep_us_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    silence = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: silence.wait(5) and [])
    monkeypatch.setattr(own_address, "_LOOKUP_LIMIT_S", 0.05)
    try:
        assert addresses_of("vllm") == []
    finally:
        silence.set()
