"""The process: signals, draining, telling a new observer, bad settings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.kit.eventually import eventually
from tests.kit.processes import is_alive
from tests.relay.peers import LAST_CHUNK, STREAM_HEAD, Peer, ScriptedUpstream, chunk, event, get, post
from tests.relay.running import RelayProcess

from prefillwatch.settings.declared import DEFAULTS
from prefillwatch.settings.views import relay_view
from prefillwatch.wire.tap import Finish, Hello, Kind, decode_payload

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def streaming(relay: RelayProcess, upstream: ScriptedUpstream) -> tuple[Peer, Peer]:
    """A client in the middle of a stream, and its server."""
    client = relay.connect()
    client.send(post())
    server = upstream.accept()
    server.head()
    server.exactly(15)
    server.send(STREAM_HEAD + chunk(event(1)))
    client.until(chunk(event(1)))
    return client, server


def is_listening(relay: RelayProcess) -> bool:
    try:
        relay.connect().close()
    except ConnectionRefusedError:
        return False
    return True


def test_it_says_hello_and_tells_its_figures(start_process: Callable[..., RelayProcess]) -> None:
    relay = start_process(index=3)
    (hello,) = relay.tap.wait(Kind.HELLO, stream=0)
    assert decode_payload(Kind.HELLO, hello[3], Hello) == Hello(3, relay.process.pid)
    assert {packet.relay for packet in relay.tap.packets} == {3}
    client = relay.connect()
    client.send(b"G")
    assert eventually(lambda: relay.tap.stats().client_connections == 1)
    stats = relay.tap.stats()
    assert len(stats.lag_counts) == len(stats.lag_bounds) + 1


def test_it_imports_nothing_that_is_heavy(start_process: Callable[..., RelayProcess]) -> None:
    code = (
        "import sys, prefillwatch.relay.relay\n"
        "print([m for m in ('numpy','pydantic','httpx','asyncio','ssl','yaml','logging') if m in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, check=True).stdout
    assert printed == b"[]\n"


def test_sigterm_lets_streams_finish(start_process: Callable[..., RelayProcess], upstream: ScriptedUpstream) -> None:
    relay = start_process()
    idle = relay.connect()
    idle.send(get())
    server = upstream.accept()
    server.head()
    server.send(OK)
    idle.until(b"ok")
    waiting = relay.connect()
    waiting.send(get("/slow"))
    assert server.head().startswith(b"GET /slow ")
    client, streamer = streaming(relay, upstream)

    relay.signal(signal.SIGTERM)
    assert idle.rest() == b""
    assert eventually(lambda: not is_listening(relay))
    assert client.is_silent()
    streamer.send(chunk(event(2)) + LAST_CHUNK)
    assert client.rest() == chunk(event(2)) + LAST_CHUNK  # whole, and then closed
    server.send(OK)
    assert waiting.rest() == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    client.close()
    waiting.close()
    idle.close()
    assert relay.exit_code() == 0
    assert relay.tap.end(3).finish is Finish.COMPLETE


def test_what_does_not_finish_in_time_is_cut(
    start_process: Callable[..., RelayProcess], upstream: ScriptedUpstream
) -> None:
    relay = start_process(drain_timeout=0.3)
    client, server = streaming(relay, upstream)
    silent = relay.connect()
    silent.send(post())
    upstream.accept().head()
    relay.signal(signal.SIGTERM)
    assert client.rest() == b""  # no last chunk: nobody can take this for an end
    assert silent.end() == "reset"  # nor this for an empty answer
    assert server.end() == "reset"
    assert relay.exit_code() == 0
    end = relay.tap.end(1)
    assert (end.finish, end.status) == (Finish.CUT, 200)
    assert relay.tap.end(2).finish is Finish.CUT


def test_a_later_sigterm_cuts_at_once(start_process: Callable[..., RelayProcess], upstream: ScriptedUpstream) -> None:
    relay = start_process(drain_timeout=60)
    client, _ = streaming(relay, upstream)
    relay.signal(signal.SIGTERM)
    relay.signal(signal.SIGTERM)  # the same one, by way of the supervisor
    assert client.is_silent(0.6)
    relay.signal(signal.SIGTERM)
    assert client.end() in ("closed", "reset")
    assert relay.exit_code() == 0


def test_a_request_that_is_just_arriving_is_served_while_draining(
    start_process: Callable[..., RelayProcess], upstream: ScriptedUpstream
) -> None:
    relay = start_process()
    client = relay.connect()
    client.send(post()[:-3])
    relay.tap.wait(Kind.REQUEST)
    relay.signal(signal.SIGTERM)
    assert eventually(lambda: not is_listening(relay))
    client.send(post()[-3:])
    server = upstream.accept()
    server.head()
    server.send(OK)
    assert client.rest() == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    client.close()
    assert relay.exit_code() == 0


def test_an_idle_relay_ends_at_once_and_ctrl_c_is_left_to_the_supervisor(
    start_process: Callable[..., RelayProcess],
) -> None:
    relay = start_process()
    relay.tap.wait(Kind.HELLO, stream=0)
    relay.signal(signal.SIGINT)
    assert is_listening(relay)
    relay.signal(signal.SIGTERM)
    assert relay.exit_code() == 0


def test_a_new_observer_is_told_what_is_running(
    start_process: Callable[..., RelayProcess], upstream: ScriptedUpstream
) -> None:
    relay = start_process()
    client, server = streaming(relay, upstream)
    waiting = relay.connect()
    waiting.send(post("/v1/messages"))
    upstream.accept().head()
    received = relay.tap.wait(Kind.REQUEST_END, stream=1)[0][0]
    relay.tap.wait(Kind.SENT, stream=2)
    relay.tap.records.clear()

    relay.signal(signal.SIGUSR2)
    relay.tap.wait(Kind.HELLO, stream=0)
    first, second = relay.tap.request(1), relay.tap.request(2)
    assert (first.resumed, first.received_ns, first.path) == (True, received, "/v1/chat/completions")
    assert (second.resumed, second.path) == (True, "/v1/messages")
    assert relay.tap.response(1).observed is True
    assert relay.tap.story(2) == ["REQUEST"]
    server.send(chunk(event(2)))
    client.until(chunk(event(2)))
    assert eventually(lambda: relay.tap.payload() == event(2))


def test_streams_go_on_when_the_observer_is_gone(
    start_process: Callable[..., RelayProcess], upstream: ScriptedUpstream
) -> None:
    relay = start_process()
    client, server = streaming(relay, upstream)
    relay.tap.close()
    for number in range(50):
        server.send(chunk(event(number)))
        assert client.exactly(len(chunk(event(number)))) == chunk(event(number))
    assert client.is_silent(0.1)
    server.send(LAST_CHUNK)
    assert client.exactly(5) == LAST_CHUNK


def test_without_a_supervisor_it_drains(start_process: Callable[..., RelayProcess], upstream: ScriptedUpstream) -> None:
    """The settings come through a process that ends at once, as a supervisor that was killed does."""
    listener_closed = subprocess.run(
        [sys.executable, "-c", ORPHAN], env=os.environ, capture_output=True, timeout=30, check=True
    )
    pid = int(listener_closed.stdout)
    eventually(lambda: not is_alive(pid), "it goes on without its supervisor")


ORPHAN = """
import socket, subprocess, sys
import msgspec
from prefillwatch.settings.declared import DEFAULTS
from prefillwatch.settings.views import relay_view
listener = socket.create_server(("127.0.0.1", 0))
relay = subprocess.Popen([sys.executable, "-m", "prefillwatch.relay"], stdin=subprocess.PIPE,
                         stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()])
settings = relay_view(DEFAULTS, upstream="http://127.0.0.1:1", listen_fds=(listener.fileno(),))
relay.stdin.write(msgspec.json.encode(settings))
relay.stdin.close()
client = socket.create_connection(listener.getsockname())
client.sendall(b"GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
assert client.recv(100).startswith(b"HTTP/1.1 502")  # it runs
print(relay.pid)
"""


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"upstream": "ftp://x"}, b"write http://HOST:PORT"),
        ({"upstream": None}, b"upstream"),
        ({"listen_fds": [999]}, b"Bad file descriptor"),
        ({"surprise": 1}, b"surprise"),
        ({"tls_fd": 999}, b"Bad file descriptor"),
    ],
)
def test_bad_settings_are_one_line_that_names_them(changed: dict[str, Any], named: bytes) -> None:
    settings = msgspec.to_builtins(relay_view(DEFAULTS, upstream="http://x", listen_fds=()))
    says_why(msgspec.json.encode(settings | changed), named)


@pytest.mark.parametrize(("document", "named"), [(b"", b"Input data was truncated"), (b"{}", b"upstream")])
def test_no_settings_are_one_line_as_well(document: bytes, named: bytes) -> None:
    says_why(document, named)


def says_why(document: bytes, named: bytes) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "prefillwatch.relay"], input=document, env=os.environ, capture_output=True, check=False
    )
    assert process.returncode == 1
    assert process.stderr.count(b"\n") == 1
    assert process.stderr.startswith(b"prefillwatch relay: cannot start: ")
    assert named in process.stderr
