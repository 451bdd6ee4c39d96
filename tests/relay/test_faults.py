"""Faults of ours: each ends the one exchange that it happened in, is counted as internal, and nobody else notices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.kit.eventually import eventually
from tests.relay.peers import LAST_CHUNK, STREAM_HEAD, Peer, ScriptedUpstream, chunk, event, post
from tests.relay.running import RunningRelay

from prefillwatch.relay.client import ClientConnection
from prefillwatch.relay.exchange.core import ExchangeCore
from prefillwatch.relay.exchange.state import Event, ExchangeStateError, State
from prefillwatch.wire.tap import Finish, Kind


@pytest.fixture
def relay(start: Callable[..., RunningRelay]) -> RunningRelay:
    return start(contains_faults=True, idle_limit=0.2, request_timeout=0.3)


def impossible(*_: Any, **__: Any) -> Any:
    raise ExchangeStateError(Event.CONNECTED, State.DONE)


def other_stream(relay: RunningRelay, upstream: ScriptedUpstream) -> tuple[Peer, Peer]:
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.send(STREAM_HEAD + chunk(event(1)))
    client.until(chunk(event(1)))
    return client, server


#: The event that fails, by the step of the relay in which that happens.
EVENTS = {
    "the request is complete": "complete",
    "a connection is there": "connected",
    "the request was handed over": "sent",
    "bytes of an answer": "read",
    "once a second": "silent",
}


@pytest.mark.parametrize("step", EVENTS)
def test_an_event_that_cannot_be_ends_one_exchange(
    relay: RunningRelay,
    upstream: ScriptedUpstream,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    _, streaming = other_stream(relay, upstream)
    monkeypatch.setattr(ExchangeCore, EVENTS[step], impossible)
    client = relay.connect()
    client.send(post())
    if step == "bytes of an answer":
        server = upstream.accept()
        server.head()
        server.send(b"HTTP/1.1 200 OK\r\n")
    assert client.end() == "reset"
    end = relay.tap.end(2)
    assert (end.finish, end.reason) == (Finish.CUT, "internal")
    monkeypatch.undo()
    if step != "once a second":  # the other stream is as silent as this one was
        streaming.send(chunk(event(2)) + LAST_CHUNK)
        assert relay.tap.end(1).finish is Finish.COMPLETE
    assert relay.becomes_idle()
    stats = len(relay.tap.wait(Kind.STATS, stream=0))
    relay.tap.wait(Kind.STATS, stream=0, count=stats + 1)  # its clock ticks on
    assert "prefillwatch relay: ExchangeStateError in " in capsys.readouterr().err


def test_a_deadline_that_fails_ends_one_connection_and_the_others_have_theirs(
    relay: RunningRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[ClientConnection] = []
    late = ClientConnection.late

    def fail_once(connection: ClientConnection) -> None:
        if not failed:
            failed.append(connection)
            impossible()
        late(connection)

    monkeypatch.setattr(relay.relay.receiving, "_expired", fail_once)
    clients = [relay.connect() for _ in range(3)]
    for client in clients:
        client.send(post()[:-1])
    ends = sorted(relay.tap.end(stream).reason for stream in (1, 2, 3))
    assert ends == ["internal", "request_timeout", "request_timeout"]
    assert eventually(lambda: not relay.relay.exchanges)
