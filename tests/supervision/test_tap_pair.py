"""The two ends of a tap."""

from __future__ import annotations

import socket

from prefillwatch.supervision.tap_pair import tap_pair


def send_or_zero(end: socket.socket, packet: bytes) -> int:
    try:
        return end.send(packet)
    except BlockingIOError:
        return 0


def test_a_tap_keeps_packets_whole_and_refuses_instead_of_blocking() -> None:
    relay_end, observer_end = tap_pair()
    packet = bytes(96 * 1024)
    sent = sum(iter(lambda: send_or_zero(relay_end, packet), 0))
    assert sent >= 2 * len(packet)
    assert observer_end.recv(2 * len(packet)) == packet
    relay_end.close()
    observer_end.close()
