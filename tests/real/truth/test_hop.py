"""The hop holds what it shall hold, and loses nothing. Needs no vLLM."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.real.truth.hop import BufferingHop


@contextmanager
def through(request: bytes, **holds: float) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client and a server with a hop between them; the request has arrived."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        hop = BufferingHop(listener.getsockname()[1])
        for name, value in holds.items():
            setattr(hop, name, value)
        with hop, socket.create_connection(("127.0.0.1", hop.port)) as client:
            client.sendall(request)
            server, _ = listener.accept()
            with server:
                assert server.recv(1000) == request
                yield client, server


def test_without_a_hold_bytes_pass() -> None:
    with through(b"POST / HTTP/1.1\r\n\r\n") as (client, server):
        server.sendall(b"token")
        assert client.recv(1000) == b"token"


def test_bytes_wait_until_they_are_enough() -> None:
    with through(b"POST / HTTP/1.1\r\n\r\n", hold_bytes=10) as (client, server):
        server.sendall(b"seven..")
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1000)
        client.settimeout(10)
        server.sendall(b"three")
        assert client.recv(1000) == b"seven..three"


def test_the_rest_leaves_when_the_answer_ends() -> None:
    with through(b"POST / HTTP/1.1\r\n\r\n", hold_bytes=10_000, hold_seconds=1000) as (client, server):
        server.sendall(b"end0\r\n\r\n")
        assert client.recv(1000) == b"end0\r\n\r\n"


def test_the_rest_leaves_when_the_connection_ends() -> None:
    with through(b"POST / HTTP/1.1\r\n\r\n", hold_bytes=10_000) as (client, server):
        server.sendall(b"rest")
        server.shutdown(socket.SHUT_WR)
        assert client.recv(1000) == b"rest"


def test_bursts_leave_together_in_time() -> None:
    with through(b"POST / HTTP/1.1\r\n\r\n", hold_seconds=0.3) as (client, server):
        server.sendall(b"a burst")
        client.settimeout(10)
        assert client.recv(1000) == b"a burst"


def test_other_answers_are_not_held() -> None:
    with through(b"GET /metrics HTTP/1.1\r\n\r\n", hold_bytes=10_000) as (client, server):
        server.sendall(b"page")
        assert client.recv(1000) == b"page"
