"""TLS on both sides, and unix sockets."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.fakes.certificate import in_one_file
from tests.kit.eventually import eventually
from tests.relay.peers import LAST_CHUNK, STREAM_HEAD, Peer, ScriptedUpstream, chunk, event, get, post
from tests.relay.running import RunningRelay

from prefillwatch.relay.certificate import shared_memory, write_shared
from prefillwatch.wire.tap import Finish, Kind


@pytest.fixture
def memory(pem: Path) -> Iterator[int]:
    """The certificate as the supervisor hands it over."""
    fd = shared_memory()
    write_shared(fd, pem.read_bytes())
    yield fd
    os.close(fd)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and self-signed certificate for 127.0.0.1 in one file."""
    return in_one_file(tmp_path_factory.mktemp("tls"))


def secured(client: Peer, pem: Path) -> Peer:
    context = ssl.create_default_context(cafile=str(pem))
    return Peer(context.wrap_socket(client.socket, server_hostname="127.0.0.1", suppress_ragged_eofs=False))


class Begun(NamedTuple):
    """A client that speaks TLS, and upstream's end of the request that it has sent."""

    relay: RunningRelay
    client: Peer
    server: Peer


Begin = Callable[..., Begun]


@pytest.fixture
def begin(start: Callable[..., RunningRelay], upstream: ScriptedUpstream, pem: Path, memory: int) -> Iterator[Begin]:
    """Starts a relay that serves TLS, with options of its own, and asks it for a stream."""
    with ExitStack() as stack:

        def begin(receive_buffer: int = 0, **options: Any) -> Begun:
            relay = start(tls_fd=memory, **options)
            client = stack.enter_context(closing(secured(relay.connect(receive_buffer=receive_buffer), pem)))
            client.send(post())
            server = upstream.accept()
            server.head()
            server.exactly(15)
            return Begun(relay, client, server)

        yield begin


@pytest.fixture
def secure_upstream(pem: Path) -> Iterator[ScriptedUpstream]:
    with closing(ScriptedUpstream.on_tcp(server_context(pem))) as upstream:
        yield upstream


def server_context(pem: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


def test_clients_over_tls(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream, pem: Path, memory: int
) -> None:
    relay = start(tls_fd=memory)
    with closing(secured(relay.connect(), pem)) as client:
        for _ in range(2):
            client.send(post(body=b"x" * 100_000))
            server = upstream.peers[0] if upstream.peers else upstream.accept()
            server.head()
            assert server.exactly(100_000) == b"x" * 100_000
            server.send(STREAM_HEAD + chunk(event(1)))
            assert client.until(chunk(event(1))) == STREAM_HEAD + chunk(event(1))
            server.send(chunk(b"y" * 500_000) + LAST_CHUNK)
            assert client.until(LAST_CHUNK) == chunk(b"y" * 500_000) + LAST_CHUNK
        client.send(get(headers=b"Connection: close\r\n"))
        server.head()
        server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        assert client.rest().endswith(b"ok")  # ended by close_notify: anything else would raise
    assert relay.tap.end(3).finish is Finish.COMPLETE
    assert relay.tap.payload() == event(1) + b"y" * 500_000
    assert eventually(lambda: not relay.relay.clients)


def test_a_tls_client_that_leaves(begin: Begin) -> None:
    relay, client, server = begin()
    server.send(STREAM_HEAD + chunk(event(1)))
    client.until(chunk(event(1)))
    client.close()
    assert server.end() == "reset"
    assert relay.tap.end().finish is Finish.CLIENT_CLOSED


def test_a_tls_client_that_says_goodbye_but_stays_connected(begin: Begin) -> None:
    _, client, server = begin()
    assert isinstance(client.socket, ssl.SSLSocket)
    with pytest.raises(ssl.SSLError):  # we do not answer it, we hang up
        client.socket.unwrap()
    assert server.end() == "reset"


def test_a_truncated_answer_has_no_goodbye(begin: Begin) -> None:
    _, client, server = begin()
    server.send(STREAM_HEAD + chunk(event(1)))
    client.until(chunk(event(1)))
    server.close()
    with pytest.raises((ssl.SSLEOFError, ConnectionResetError)):
        client.rest()


def test_what_is_held_when_an_answer_breaks_off_reaches_a_tls_client_too(begin: Begin) -> None:
    relay, client, server = begin(receive_buffer=4096)
    server.send(STREAM_HEAD)
    piece = chunk(b"x" * 30_000)
    (connection,) = relay.relay.clients
    pieces = 0
    while connection.unsent is None:
        server.send(piece)
        pieces += 1
        server.is_silent(0.001)
    server.close()
    assert client.exactly(len(STREAM_HEAD) + len(piece) * pieces).endswith(piece)
    with pytest.raises((ssl.SSLEOFError, ConnectionResetError)):
        client.rest()


def test_back_pressure_reaches_through_tls(begin: Begin) -> None:
    relay, client, server = begin(receive_buffer=65536)
    server.send(STREAM_HEAD)
    piece = chunk(b"x" * 60_000)
    taken = server.send_until_blocked(piece)
    relay.tap.wait(Kind.BLOCKED)
    server.socket.settimeout(0.01)
    sent = (STREAM_HEAD + piece * (taken // len(piece) + 1))[: len(STREAM_HEAD) + taken]
    assert client.exactly(len(sent)) == sent


def test_who_does_not_speak_tls_is_turned_away(start: Callable[..., RunningRelay], pem: Path, memory: int) -> None:
    relay = start(tls_fd=memory, request_timeout=0.2)
    client = relay.connect()
    client.send(get())
    client.end()
    silent = relay.connect()
    assert silent.end() == "closed"
    assert relay.in_flight == 0


def test_upstream_over_tls(start: Callable[..., RunningRelay], secure_upstream: ScriptedUpstream, pem: Path) -> None:
    relay = start(secure_upstream.url, upstream_ca=str(pem))
    client = relay.connect()
    for number in range(2):
        client.send(post())
        server = secure_upstream.peers[0] if number else secure_upstream.accept()
        assert b"\r\nHost: 127.0.0.1:%d\r\n" % secure_upstream.port in server.head()  # its own name, not ours
        server.exactly(15)
        burst = b"".join(chunk(event(number)) for number in range(2000))
        server.send(STREAM_HEAD + burst + LAST_CHUNK)
        assert client.until(LAST_CHUNK) == STREAM_HEAD + burst + LAST_CHUNK
    assert relay.tap.end(2).finish is Finish.COMPLETE
    assert relay.tap.payload() == b"".join(map(event, range(2000)))


def test_the_host_can_be_kept_for_a_tls_upstream(
    start: Callable[..., RunningRelay], secure_upstream: ScriptedUpstream, pem: Path
) -> None:
    relay = start(secure_upstream.url, upstream_ca=str(pem), preserve_host=True)
    relay.connect().send(get())
    assert b"\r\nHost: relay\r\n" in secure_upstream.accept().head()


def test_an_upstream_whose_certificate_is_not_trusted(start: Callable[..., RunningRelay], pem: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with closing(listener):
        relay = start(f"https://127.0.0.1:{listener.getsockname()[1]}")
        client = relay.connect()
        client.send(get())
        opened, _ = listener.accept()
        with closing(opened), pytest.raises(ssl.SSLError):
            server_context(pem).wrap_socket(opened, server_side=True)
        assert client.head().startswith(b"HTTP/1.1 502 ")
        assert relay.tap.end().reason == "tls"


def test_verification_can_be_switched_off(
    start: Callable[..., RunningRelay], secure_upstream: ScriptedUpstream
) -> None:
    relay = start(secure_upstream.url, upstream_insecure=True)
    relay.connect().send(get())
    assert secure_upstream.accept().head().startswith(b"GET /health ")


def test_a_tls_upstream_that_breaks_off_without_goodbye(
    start: Callable[..., RunningRelay], secure_upstream: ScriptedUpstream
) -> None:
    relay = start(secure_upstream.url, upstream_insecure=True)
    client = relay.connect()
    client.send(get())
    server = secure_upstream.accept()
    server.head()
    server.send(b"HTTP/1.1 200 OK\r\n\r\nfirst half")
    client.until(b"first half")
    server.socket.shutdown(socket.SHUT_RDWR)
    assert client.end() == "reset"  # an attacker could have cut it
    assert relay.tap.end().finish is Finish.UPSTREAM_TRUNCATED


@pytest.mark.parametrize("form", ["unix:{}", "unix://{}", "http+unix://{quoted}"])
def test_upstream_on_a_unix_socket(start: Callable[..., RunningRelay], tmp_path: Path, form: str) -> None:
    path = tmp_path / "vllm.sock"
    with closing(ScriptedUpstream.on_unix(str(path))) as upstream:
        relay = start(form.format(path, quoted=str(path).replace("/", "%2F")))
        client = relay.connect()
        client.send(post())
        server = upstream.accept()
        assert server.head().startswith(b"POST /v1/chat/completions HTTP/1.1\r\nHost: relay\r\n")
        server.exactly(15)
        server.send(STREAM_HEAD + chunk(event(1)))
        assert client.until(chunk(event(1))) == STREAM_HEAD + chunk(event(1))
        client.close()
        assert server.rest() == b""
        assert relay.tap.end().finish is Finish.CLIENT_CLOSED


def test_a_unix_socket_that_is_not_there_or_too_full(start: Callable[..., RunningRelay], tmp_path: Path) -> None:
    relay = start(f"unix:{tmp_path}/none.sock")
    client = relay.connect()
    client.send(get())
    assert client.head().startswith(b"HTTP/1.1 502 ")

    full = socket.socket(socket.AF_UNIX)
    with closing(full):
        full.bind(str(tmp_path / "full.sock"))
        full.listen(0)
        relay = start(f"unix:{tmp_path}/full.sock", connect_timeout=5)
        first, second = relay.connect(), relay.connect()
        first.send(get())
        relay.tap.wait(Kind.SENT)
        second.send(get())
        assert second.is_silent(0.05)
        accepted = [Peer(full.accept()[0]), Peer(full.accept()[0])]  # the second got in as soon as there was room
        for peer in accepted:
            assert peer.head() == get()
            peer.close()


def test_an_upload_over_tls_that_waits_for_room_goes_on_when_there_is_some(
    start: Callable[..., RunningRelay], upstream: ScriptedUpstream, pem: Path, memory: int
) -> None:
    mib = 2**20
    relay = start(tls_fd=memory, max_body=8 * mib, max_bodies=12 * mib)  # room for one of them
    head = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (8 * mib)
    first, second = (secured(relay.connect(), pem) for _ in range(2))
    with closing(first), closing(second):
        first.send(head + b"x" * (mib + 1))
        assert eventually(lambda: relay.relay.bodies.large == 8 * mib)
        second.send(head + b"x" * (mib + 1))
        assert eventually(lambda: relay.relay.bodies.waiting == 1)
        for client in (first, second):
            client.send(b"x" * (7 * mib - 1))
            server = upstream.accept()
            server.head()
            assert server.exactly(8 * mib) == b"x" * (8 * mib)
            server.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            client.until(b"ok")
    assert eventually(lambda: relay.relay.bodies.held == 0)


def test_a_client_over_tls_that_takes_nothing_is_left(begin: Begin) -> None:
    relay, _, server = begin(receive_buffer=4096, client_write_timeout=1.0)
    server.send(STREAM_HEAD)
    server.send_until_blocked(chunk(event(1) * 50))
    assert server.end() == "reset"
    end = relay.tap.end()
    assert (end.finish, end.reason) == (Finish.CLIENT_CLOSED, "write_timeout")


def test_a_request_that_crosses_the_end_of_a_kept_tls_connection_is_sent_again(
    start: Callable[..., RunningRelay], secure_upstream: ScriptedUpstream, pem: Path
) -> None:
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    relay = start(secure_upstream.url, upstream_ca=str(pem))
    client = relay.connect()
    client.send(get())
    kept = secure_upstream.accept()
    kept.head()
    kept.send(ok)
    client.until(b"ok")
    original = relay.relay.pool.take

    def take() -> object:
        connection = original()
        kept.close()  # just when it was found open
        return connection

    relay.relay.pool.take = take  # type: ignore[method-assign, assignment]
    client.send(post())
    again = secure_upstream.accept()
    again.head()
    again.send(ok)
    assert client.until(b"ok") == ok
    assert relay.relay.retries == 1
