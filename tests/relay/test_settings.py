"""Where upstream is, and what a relay is told."""

from __future__ import annotations

import msgspec
import pytest

from prefillwatch.relay.settings import Upstream, decode_settings, parse_upstream
from prefillwatch.settings.declared import DEFAULTS
from prefillwatch.settings.views import relay_view


@pytest.mark.parametrize(
    ("url", "upstream", "authority"),
    [
        ("http://127.0.0.1:8000", Upstream("127.0.0.1", 8000), "127.0.0.1:8000"),
        ("http://vllm", Upstream("vllm", 80), "vllm"),
        ("http://vllm/", Upstream("vllm", 80), "vllm"),
        ("https://vllm", Upstream("vllm", 443, tls=True), "vllm"),
        ("https://vllm:80", Upstream("vllm", 80, tls=True), "vllm:80"),
        ("http://[::1]:8000", Upstream("::1", 8000), "[::1]:8000"),
        ("unix:/run/vllm.sock", Upstream("", 0, "/run/vllm.sock"), "localhost"),
        ("unix:///run/vllm.sock", Upstream("", 0, "/run/vllm.sock"), "localhost"),
        ("http+unix://%2Frun%2Fvllm.sock", Upstream("", 0, "/run/vllm.sock"), "localhost"),
    ],
)
def test_addresses_of_upstream(url: str, upstream: Upstream, authority: str) -> None:
    assert parse_upstream(url) == upstream
    assert parse_upstream(url).authority == authority


@pytest.mark.parametrize(
    "url",
    ["vllm:8000", "ftp://vllm", "http://", "http://u:p@vllm", "http://vllm/v1", "http://vllm?x", "unix:run.sock", ""],
)
def test_addresses_that_are_refused_with_a_remedy(url: str) -> None:
    with pytest.raises(ValueError, match=r"write|leave") as caught:
        parse_upstream(url)
    assert repr(url) in str(caught.value)


def test_names_need_a_lookup_and_addresses_do_not() -> None:
    assert parse_upstream("http://127.0.0.1:1").is_numeric
    assert parse_upstream("http://[::1]:1").is_numeric
    assert parse_upstream("unix:/x").is_numeric
    assert not parse_upstream("http://localhost:1").is_numeric


def test_settings_travel_as_json() -> None:
    settings = relay_view(DEFAULTS, upstream="http://vllm", listen_fds=(3, 4), tap_fd=5, preserve_host=False)
    assert decode_settings(msgspec.json.encode(settings)) == settings
