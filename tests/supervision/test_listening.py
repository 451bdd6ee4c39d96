"""Listening sockets and tap pairs."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from prefillwatch.errors import ListenError
from prefillwatch.settings.addresses import ListenAddress
from prefillwatch.supervision.listening import bind_listeners, port_of, tap_pair

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


def send_or_zero(end: socket.socket, packet: bytes) -> int:
    try:
        return end.send(packet)
    except BlockingIOError:
        return 0


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


def test_connections_wait_in_a_socket_whose_process_is_away() -> None:
    groups = bind_listeners(LOOPBACK, 1, "listen")
    with socket.create_connection(("127.0.0.1", port_of(groups[0]))):
        groups[0][0].setblocking(True)
        accepted, _ = groups[0][0].accept()
        accepted.close()
    close(groups)


def test_a_tap_keeps_packets_whole_and_refuses_instead_of_blocking() -> None:
    relay_end, observer_end = tap_pair()
    packet = bytes(96 * 1024)
    sent = sum(iter(lambda: send_or_zero(relay_end, packet), 0))
    assert sent >= 2 * len(packet)
    assert observer_end.recv(2 * len(packet)) == packet
    relay_end.close()
    observer_end.close()
