"""A relay between a client whose bytes are given and an origin that reads strictly and keeps what it read."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import h11
from tests.foreign.http.machines import pieces_of
from tests.relay.running import RunningRelay

from prefillwatch.relay.exchange.state import State

PATIENCE_S = 10.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Read:
    """A request as somebody understood it."""

    method: bytes
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def values(self, name: bytes) -> list[bytes]:
        return [value for found, value in self.headers if found == name]


def read_all(data: bytes) -> tuple[list[Read], bool]:
    """The complete requests that h11 finds in these bytes, and whether it refuses what comes then."""
    found: list[Read] = []
    # An empty line before a request is forgiven by whoever follows RFC 9112; h11 does not.
    rest = data.removeprefix(b"\r\n")
    try:
        while rest:
            connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
            connection.receive_data(rest)
            request = connection.next_event()
            if not isinstance(request, h11.Request):
                return found, False
            body = bytearray()
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if not isinstance(event, h11.Data):
                    return found, False
                body += event.data
            headers = [(bytes(name), bytes(value)) for name, value in request.headers]
            found.append(Read(bytes(request.method), bytes(request.target), headers, bytes(body)))
            if connection.their_state is not h11.DONE:
                return found, False
            rest = connection.trailing_data[0]
    except h11.RemoteProtocolError:
        return found, True
    return found, False


class Origin:
    """Keeps every byte by connection. A request is whole for it when h11 says so, and is answered then.

    It listens on a port of TCP, with TLS where a context is given, or on a unix socket where a path is.
    """

    def __init__(self, *, path: str = "", context: ssl.SSLContext | None = None) -> None:
        self.streams: list[bytearray] = []
        self._context = context
        if path:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(path)
            self._listener.listen(1024)
            self.url = f"unix:{path}"
        else:
            self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
            self.url = f"{'https' if context else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True, name="origin").start()

    def _accept(self) -> None:
        while True:
            try:
                opened, _ = self._listener.accept()
            except OSError:
                return
            self._open.add(opened)
            threading.Thread(target=self._serve, args=(opened,), daemon=True).start()

    def _serve(self, opened: socket.socket) -> None:
        stream = bytearray()
        self.streams.append(stream)
        answered = 0
        with contextlib.suppress(OSError), self._secured(opened) as opened:
            while data := opened.recv(1 << 16):
                stream += data
                requests, refused = read_all(bytes(stream))
                for request in requests[answered:]:
                    opened.sendall(OK[:-2] if request.method == b"HEAD" else OK)
                answered = len(requests)
                if refused:
                    opened.sendall(b"HTTP/1.1 400 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    return
        self._open.discard(opened)

    def _secured(self, opened: socket.socket) -> socket.socket:
        return opened if self._context is None else self._context.wrap_socket(opened, server_side=True)

    def close(self) -> None:
        self._listener.close()
        for opened in list(self._open):
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)


@dataclass
class Outcome:
    """What became of one client connection."""

    answers: bytes  # what the client got
    ended: bool  # the connection was ended by the relay
    requests: list[Read] = field(default_factory=list)  # what reached the origin, as it understood it
    refused: bool = False  # the origin refused something
    rest: bytes = b""  # what reached the origin and was no whole request


class Stage:
    """``options`` are the relay's. ``context``: clients come over TLS."""

    def __init__(self, origin: Origin | None = None, *, context: ssl.SSLContext | None = None, **options: Any) -> None:
        self.origin = origin or Origin()
        self.relay = RunningRelay(self.origin.url, **options)
        self._context = context

    def run(self, data: bytes, cuts: Sequence[int] = ()) -> Outcome:
        """Send these bytes, in pieces, on a connection of their own, and see what comes of it once nothing moves."""
        before = len(self.origin.streams)
        with self._connect() as client:
            for piece in pieces_of(data, cuts):
                with contextlib.suppress(OSError):  # it may have been refused and closed already
                    client.sendall(piece)
                if cuts:
                    self._turn()
            self.settle()
            outcome = _received(client)
        self.settle()
        self._drop_idle()
        for stream in self.origin.streams[before:]:
            requests, refused = read_all(bytes(stream))
            outcome.requests += requests
            outcome.refused |= refused
            outcome.rest += b"" if requests else bytes(stream)
        return outcome

    def _connect(self) -> socket.socket:
        opened = socket.create_connection(("127.0.0.1", self.relay.port))
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.settimeout(PATIENCE_S)
        return opened if self._context is None else self._context.wrap_socket(opened, server_hostname="127.0.0.1")

    def _turn(self) -> tuple[bool, int]:
        """After one more turn of the relay: whether nothing moves, and how much has happened so far."""
        done = threading.Event()
        seen: list[tuple[bool, int]] = []

        def look() -> None:
            relay = self.relay.relay
            waiting = all(exchange.core.state is State.RECEIVING for exchange in relay.exchanges.values())
            flushed = all(client.unsent is None for client in relay.clients)
            quiet = (
                waiting
                and flushed
                and not (relay.reactor._soon or relay.reactor._soon_back or relay.reactor._back_waits)
            )
            seen.append((quiet, relay._last_stream))
            done.set()

        self.relay.call(look)
        assert done.wait(PATIENCE_S)
        return seen[0]

    def settle(self) -> None:
        """Wait until nothing moves any more."""
        end = time.monotonic() + PATIENCE_S
        quiet = 0
        last = -1
        while time.monotonic() < end:
            still, streams = self._turn()
            quiet = quiet + 1 if still and streams == last else 0
            last = streams
            if quiet >= 2:
                return
            if not still:
                time.sleep(0.0005)
        raise AssertionError("the relay does not come to rest")

    def _drop_idle(self) -> None:
        """The next run gets connections of its own."""
        done = threading.Event()

        def drop() -> None:
            self.relay.relay.pool.close()
            done.set()

        self.relay.call(drop)
        assert done.wait(PATIENCE_S)

    def close(self) -> None:
        self.relay.close()
        self.origin.close()


@contextlib.contextmanager
def stage(origin: Origin | None = None, **options: Any) -> Iterator[Stage]:
    opened = Stage(origin, **options)
    try:
        yield opened
    finally:
        opened.close()


def _received(client: socket.socket) -> Outcome:
    """What has come so far."""
    client.setblocking(False)
    answers = b""
    try:
        while data := client.recv(1 << 16):
            answers += data
    except (BlockingIOError, ssl.SSLWantReadError):
        return Outcome(answers, False)
    except OSError:
        pass
    return Outcome(answers, True)
