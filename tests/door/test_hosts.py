"""Names that the admin listener answers to."""

from __future__ import annotations

import pytest

from prefillwatch.door.hosts import Hosts


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:9843", "10.1.2.3", "[::1]:9843", "[fd00::5]", "::1", "localhost", "LOCALHOST:9843", ""],
)
def test_addresses_and_localhost_are_nobodys_name(host: str) -> None:
    assert Hosts().admit(host)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9843", "127.0.0.1.evil.example", "localhost.evil.example", "xlocalhost", "[x"],
)
def test_any_other_name_is_not_ours(host: str) -> None:
    assert not Hosts().admit(host)


def test_names_may_be_given() -> None:
    hosts = Hosts(["Sidecar.Example.", "prefillwatch"])
    assert hosts.admit("sidecar.example:9843")
    assert hosts.admit("prefillwatch:9843")
    assert not hosts.admit("x.sidecar.example")


def test_a_dot_stands_for_all_names_below() -> None:
    hosts = Hosts([".svc.cluster.local"])
    assert hosts.admit("prefillwatch.llm.svc.cluster.local:9843")
    assert not hosts.admit("svc.cluster.local.evil.example")


def test_a_star_admits_everything() -> None:
    assert Hosts(["*"]).admit("evil.example")
