"""Connections by address."""

from __future__ import annotations

from collections.abc import Callable

from tests.kit.eventually import eventually
from tests.relay.peers import ScriptedUpstream, get
from tests.relay.running import RunningRelay

from prefillwatch.relay.addresses import Addresses


def test_each_address_has_so_many_at_once() -> None:
    addresses = Addresses(2)
    assert [addresses.admit(b"10.0.0.1") for _ in range(3)] == [True, True, False]
    assert addresses.admit(b"10.0.0.2")
    addresses.leave(b"10.0.0.1")
    assert addresses.admit(b"10.0.0.1")
    assert addresses.turned_away == 1


def test_who_has_a_network_of_ipv6_has_one_address() -> None:
    addresses = Addresses(2)
    assert [addresses.admit(b"2001:db8::%d" % host) for host in (1, 2, 3)] == [True, True, False]
    assert addresses.admit(b"2001:db8:0:1::1")
    assert addresses.admit(b"::1")


def test_without_a_limit_nothing_is_kept() -> None:
    addresses = Addresses(0)
    assert all(addresses.admit(b"10.0.0.%d" % host) for host in range(100))
    addresses.leave(b"10.0.0.1")
    assert not addresses._open


def test_one_more_is_closed_at_once_and_a_place_is_free_again_later(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream
) -> None:
    relay = start(max_clients_per_address=2)
    first = relay.connect()
    second = relay.connect()
    assert eventually(lambda: len(relay.relay.clients) == 2)
    assert relay.connect().end() == "closed"
    assert eventually(lambda: relay.tap.stats().turned_away == 1)
    first.close()
    assert eventually(lambda: len(relay.relay.clients) == 1)
    third = relay.connect()
    third.send(get())
    upstream.accept().head()
    second.close()
