"""What we send on means the same to every server: mutated requests, as they leave the relay, read by real ones.

The idea is that of http-garden. A request goes to each server as the relay sent it, with one more request behind it:
whoever finds other bounds of the first does not find the second.
"""

from __future__ import annotations

import contextlib
import functools
import socket
from pathlib import Path

import h11
import pytest
from tests.foreign.http import data
from tests.foreign.http.mutations import REQUESTS, mutated
from tests.foreign.http.origins import ORIGINS, running
from tests.foreign.http.stage import Read, read_all, stage

COUNT = 2500
_LAST = b"GET /the-last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
PATIENCE_S = 5.0


@functools.cache
def forwarded() -> tuple[bytes, ...]:
    """What the relay sent upstream, a request each."""
    inputs = [*mutated(REQUESTS, 30, COUNT), *(case.data for case in data.llhttp("request")), *_probes()]
    sent: dict[bytes, None] = {}
    with stage() as opened:
        for message in inputs:
            opened.run(message)
        for stream in opened.origin.streams:
            rest = bytes(stream)
            while rest:
                length = _length_of_first(rest)
                sent[rest[:length]] = None
                rest = rest[length:]
    return tuple(sent)


def _probes() -> list[bytes]:
    return [case.request for case in data.http11probe()]


def _length_of_first(stream: bytes) -> int:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(stream)
    while not isinstance(connection.next_event(), h11.EndOfMessage):
        pass
    return len(stream) - len(connection.trailing_data[0])


def answers(port: int, data: bytes) -> list[tuple[int, bytes]]:
    """Status and body of all answers, up to the end of the connection."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as opened:
        with contextlib.suppress(ConnectionError):
            opened.sendall(data)
        with contextlib.suppress(ConnectionError):
            while part := opened.recv(1 << 16):
                received += part
    return list(_split(received, [request.method for request in read_all(data)[0]]))


def _split(received: bytes, methods: list[bytes]) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for method in methods:
        connection = h11.Connection(h11.CLIENT)
        connection.send(h11.Request(method=method, target="/", headers=[("host", "a")]))
        connection.send(h11.EndOfMessage())
        connection.receive_data(received)
        connection.receive_data(b"")
        status, body = 0, bytearray()
        try:
            while not isinstance(event := connection.next_event(), h11.EndOfMessage | h11.ConnectionClosed):
                if isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    body += event.data
        except h11.RemoteProtocolError:
            return found
        if not status:
            return found
        found.append((status, bytes(body)))
        received = connection.trailing_data[0]
    return found


def is_same(read: Read, said: bytes) -> bool:
    """An empty query is lost to some, hypercorn writes methods in capitals, and nginx does not show bodies."""
    _, method, target, body = said.split()
    same_target = target.removesuffix(b"?") == read.target.removesuffix(b"?")
    return (
        method in (read.method, read.method.upper())
        and same_target
        and body in (b"?", read.body.hex().encode() or b"-")
    )


def test_there_is_enough_to_read() -> None:
    assert len(forwarded()) > 300


@pytest.mark.parametrize("name", ORIGINS)
def test_a_server_reads_what_was_meant_or_refuses_it(name: str, tmp_path: Path) -> None:
    understood = 0
    with running(name, tmp_path) as port:
        for request in forwarded():
            (meant,), refused = read_all(request)
            assert not refused
            if name == "hypercorn" and meant.method != b"HEAD" and meant.method.upper() == b"HEAD":
                continue  # it takes any spelling for HEAD, and leaves out a body that everybody else waits for
            got = answers(port, request + _LAST)
            assert got, f"no answer to {request!r}"
            status, said = got[0]
            if status != 200:
                assert status == 206 or 400 <= status < 600, request
                continue
            understood += 1
            if meant.method == b"HEAD":
                assert said == b""
            elif not said:  # Apache knows OPTIONS itself
                assert meant.method == b"OPTIONS", request
            else:
                assert is_same(meant, said), f"{said!r} for {request!r}"
            assert got[1:] == [(200, got[-1][1])], f"the next request got lost behind {request!r}: {got}"
            assert got[-1][1].split()[:3] == [b"ECHO", b"GET", b"/the-last"]
    print(f"{name}: read {understood} of {len(forwarded())} requests, and refused the others")
    assert understood > len(forwarded()) // 2
