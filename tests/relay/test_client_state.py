"""The life of a client's connection, as its table has it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.kit.eventually import eventually
from tests.relay.peers import Peer, ScriptedUpstream, get, post
from tests.relay.running import RunningRelay

from prefillwatch.relay.client import _READ, ClientConnection
from prefillwatch.relay.client_state import NEXT, PLACE_PATIENCE_NS, RESTING, UNREAD, ClientState, ClientStateError

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def test_every_state_has_a_way_in_a_way_out_and_something_to_do_with_what_comes() -> None:
    assert set(NEXT) == set(_READ) == set(ClientState)
    follow = {state for states in NEXT.values() for state in states}
    assert follow == set(ClientState) - {ClientState.HANDSHAKE}  # which only a new connection is in
    for state in set(ClientState) - {ClientState.CLOSED}:
        assert ClientState.CLOSED in NEXT[state]  # whoever leaves does so at any time
    assert not NEXT[ClientState.CLOSED]
    assert not RESTING & UNREAD


def test_what_the_table_lacks_is_an_error_and_changes_nothing(relay: RunningRelay) -> None:
    with looking_at(relay, relay.connect()) as connection:
        before = connection.state
        for state in ClientState:
            for wanted in set(ClientState) - NEXT[state]:
                connection.state = state
                with pytest.raises(ClientStateError, match=f"{wanted.name} after {state.name}"):
                    connection._go(wanted)
                assert connection.state is state
        connection.state = before


def test_whoever_is_waited_for_can_be_asked_for_its_place(relay: RunningRelay) -> None:
    with looking_at(relay, relay.connect()) as connection:
        timed = {state for state in ClientState if connection._deadlines(state) is not None}
    assert timed == set(PLACE_PATIENCE_NS)
    assert not timed & {ClientState.ANSWERING, ClientState.FULL, ClientState.LAST}  # nobody who is answered


@contextmanager
def looking_at(relay: RunningRelay, _client: Peer) -> Iterator[ClientConnection]:
    """The connection of the only client there is, while the relay stands still."""
    assert eventually(lambda: len(relay.relay.clients) == 1)
    with relay.standing_still():
        (connection,) = relay.relay.clients
        yield connection


def test_a_connection_from_its_first_byte_to_its_last(relay: RunningRelay, upstream: ScriptedUpstream) -> None:
    client = relay.connect()
    assert eventually(lambda: len(relay.relay.clients) == 1)
    assert len(relay.relay.client_idle) == 1
    (connection,) = relay.relay.clients

    def comes_to(state: ClientState) -> bool:
        return eventually(lambda: connection.state is state)

    assert connection.state is ClientState.IDLE
    client.send(b"GET /first HTTP/1.1\r\nHost: a\r\n")
    assert comes_to(ClientState.HEAD)
    assert (len(relay.relay.client_idle), len(relay.relay.receiving)) == (0, 1)
    client.send(b"Content-Length: 2\r\n\r\n{")
    assert comes_to(ClientState.BODY)
    assert len(relay.relay.receiving) == 1
    client.send(b"}")
    assert comes_to(ClientState.ANSWERING)
    assert len(relay.relay.receiving) == 0
    server = upstream.accept()
    server.head()
    server.exactly(2)
    client.send(get("/second") + post(body=b"x" * 100_000) + get("/fourth"))
    assert comes_to(ClientState.FULL)
    client.socket.shutdown(socket.SHUT_WR)
    for size in (0, 100_000, 0):
        server.send(OK)
        server.head()
        server.exactly(size)
    assert comes_to(ClientState.LAST)
    server.send(OK)
    assert client.rest().endswith(OK)
    assert comes_to(ClientState.CLOSED)


def test_a_refused_client_is_lingered_for(relay: RunningRelay) -> None:
    client = relay.connect()
    client.send(b"GET / HTTP/3.0\r\nHost: a\r\n\r\n")
    assert client.head().startswith(b"HTTP/1.1 505 ")
    (connection,) = relay.relay.clients
    assert eventually(lambda: connection.state is ClientState.LINGERING)
    assert (len(relay.relay.receiving), len(relay.relay.lingering)) == (0, 1)
    client.close()
    assert eventually(lambda: connection.state is ClientState.CLOSED)
    assert len(relay.relay.lingering) == 0
