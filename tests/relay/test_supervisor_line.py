"""The line to the supervisor: what a sign of life says, and the clients of relays that are away."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest
from tests.kit.eventually import eventually
from tests.relay.peers import STREAM_HEAD, ScriptedUpstream, chunk, connect, event, get, post
from tests.relay.running import RelayProcess, RunningRelay

from prefillwatch.relay.supervisor_line import Pulse, decode_pulse

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PATIENCE_S = 10.0


class Line:
    """The supervisor's end."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours.settimeout(PATIENCE_S)

    def pulse(self) -> Pulse:
        """The next one."""
        return decode_pulse(self.ours.recv(4096))

    def cover(self, *listeners: socket.socket) -> None:
        socket.send_fds(self.ours, [b"cover"], [each.fileno() for each in listeners])

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.close()


@pytest.fixture
def relay(start: Callable[..., RunningRelay], line: Line) -> RunningRelay:
    return start(supervisor_fd=line.theirs.detach())


def test_a_relay_without_work_shows_that_it_lives(relay: RunningRelay, line: Line) -> None:
    assert line.pulse() == line.pulse() == Pulse(accepting=True, hearing=False, failures=0)


def test_a_running_answer_shows_that_upstream_lives_and_a_silent_one_does_not(
    relay: RunningRelay, line: Line, upstream: ScriptedUpstream
) -> None:
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    line.pulse()
    assert not line.pulse().hearing  # the request was read, and nothing has come from upstream yet
    server.send(STREAM_HEAD + chunk(event(1)))
    client.head()
    assert line.pulse().hearing
    line.pulse()
    assert not line.pulse().hearing


def test_an_answer_that_is_over_counts_for_a_second(
    relay: RunningRelay, line: Line, upstream: ScriptedUpstream
) -> None:
    line.pulse()
    client = relay.connect()
    client.send(get())
    server = upstream.accept()
    server.head()
    server.send(OK)
    assert client.until(b"ok") == OK
    assert relay.becomes_idle()
    assert line.pulse().hearing
    assert not line.pulse().hearing


def test_attempts_to_connect_that_fail_are_counted(start: Callable[..., RunningRelay], line: Line) -> None:
    relay = start("http://127.0.0.1:1", supervisor_fd=line.theirs.detach())
    client = relay.connect()
    client.send(get())
    assert b" 502 " in client.head()
    line.pulse()
    assert line.pulse().failures == 1


def test_who_can_accept_nobody_says_so(start_process: Callable[..., RelayProcess], line: Line) -> None:
    relay = start_process(
        descriptors=40, supervisor_fd=line.theirs.fileno(), pass_fds=(line.theirs.fileno(),), client_idle_timeout=3600
    )
    assert line.pulse().accepting
    clients = []
    for _ in range(60):
        clients.append(relay.connect())
        clients[-1].send(get())  # who waits for an answer, unlike who is idle, does not leave for others
    assert eventually(lambda: not line.pulse().accepting)
    for client in clients:
        client.close()
    line.pulse()
    assert eventually(lambda: line.pulse().accepting)


def test_listeners_of_others_are_served_until_they_are_back(
    relay: RunningRelay, line: Line, upstream: ScriptedUpstream
) -> None:
    other = socket.create_server(("127.0.0.1", 0))
    line.cover(other)
    waiting = connect(other.getsockname()[1])
    waiting.send(get())
    server = upstream.accept()
    server.head()
    server.send(OK)
    assert waiting.until(b"ok") == OK
    line.cover()
    assert eventually(lambda: not relay.relay._covered)
    later = connect(other.getsockname()[1])
    later.send(get())
    assert later.is_silent(0.3)  # it is for the other relay again
    accepted, _ = other.accept()
    for each in (accepted, other, waiting, later):
        each.close()


def test_a_relay_that_drains_covers_nobody(relay: RunningRelay, line: Line) -> None:
    other = socket.create_server(("127.0.0.1", 0))
    line.cover(other)
    assert eventually(lambda: bool(relay.relay._covered))
    kept = relay.connect()
    kept.send(b"GET / HTTP/1.1\r\n")
    relay.call(relay.relay.drain)
    assert eventually(lambda: not relay.relay._covered)
    kept.close()
    relay.join()
    other.close()


def test_a_supervisor_that_is_gone_costs_nothing(relay: RunningRelay, line: Line, upstream: ScriptedUpstream) -> None:
    line.ours.close()
    client = relay.connect()
    client.send(get())
    server = upstream.accept()
    server.head()
    server.send(OK)
    assert client.until(b"ok") == OK
