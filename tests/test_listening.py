"""Listening sockets."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

import pytest

from prefillwatch.errors import ListenError
from prefillwatch.listening import bind_listeners, port_of, reachable_here
from prefillwatch.settings.addresses import ListenAddress

REAL_SOCKET = socket.socket
LOOPBACK = ListenAddress("127.0.0.1", 0)


@pytest.fixture
def taken() -> Iterator[ListenAddress]:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield ListenAddress(*other.getsockname())


def close(groups: list[list[socket.socket]]) -> None:
    for group in groups:
        for opened in group:
            opened.close()


def test_port_zero_is_resolved_once_and_shared() -> None:
    groups = bind_listeners(LOOPBACK, 3, "listen")
    assert len({port_of(group) for group in groups}) == 1
    assert port_of(groups[0]) != 0
    close(groups)


@pytest.mark.parametrize("relays", [1, 4])
def test_a_port_in_use_is_named_with_its_remedy_though_its_owner_would_share_it(
    taken: ListenAddress, relays: int
) -> None:
    with pytest.raises(ListenError, match=rf"{taken} is in use by another process; .* another address with --listen"):
        bind_listeners(taken, relays, "listen")


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(ListenError, match=r"192\.0\.2\.1:0 is no address of this machine; choose one with --admin"):
        bind_listeners(ListenAddress("192.0.2.1", 0), 1, "admin")


def test_a_host_without_address_is_named() -> None:
    with pytest.raises(ListenError, match=r"the host of no\.\.name:80 is not known here \(no valid name\); .*--listen"):
        bind_listeners(ListenAddress("no..name", 80), 1, "listen")


def without_ipv6(family: int = socket.AF_INET, *more: int) -> socket.socket:
    """As the kernel makes sockets that was started with ipv6.disable=1."""
    if family == socket.AF_INET6:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
    return REAL_SOCKET(family, *more)


def test_every_interface_is_that_of_ipv4_where_there_is_no_ipv6(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(socket, "socket", without_ipv6)
    groups = bind_listeners(ListenAddress("::", 0), 1, "listen")
    assert [opened.getsockname()[0] for opened in groups[0]] == ["0.0.0.0"]
    assert "there is no IPv6 here: [::]:0 is every IPv4 interface" in caplog.text
    assert reachable_here(ListenAddress("::", 80)) == ListenAddress("127.0.0.1", 80)
    close(groups)


def test_a_name_means_the_addresses_that_this_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", without_ipv6)
    both = [(family, 1, 6, "", (host, 0)) for family, host in ((socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1"))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    groups = bind_listeners(ListenAddress("localhost", 0), 1, "listen")
    assert [opened.getsockname()[0] for opened in groups[0]] == ["127.0.0.1"]
    close(groups)


def test_an_ipv6_address_that_was_asked_for_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", without_ipv6)
    with pytest.raises(ListenError, match=r"cannot listen on \[::1\]:0: Address family not supported"):
        bind_listeners(ListenAddress("::1", 0), 1, "listen")


@pytest.mark.parametrize(
    ("set_to", "here"), [("::", "::1"), ("0.0.0.0", "127.0.0.1"), ("::1", "::1"), ("192.0.2.1", "192.0.2.1")]
)
def test_where_a_client_here_connects(set_to: str, here: str) -> None:
    assert reachable_here(ListenAddress(set_to, 80)) == ListenAddress(here, 80)


def test_connections_wait_in_a_socket_whose_process_is_away() -> None:
    groups = bind_listeners(LOOPBACK, 1, "listen")
    with socket.create_connection(("127.0.0.1", port_of(groups[0]))):
        groups[0][0].setblocking(True)
        accepted, _ = groups[0][0].accept()
        accepted.close()
    close(groups)
