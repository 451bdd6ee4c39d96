"""Both ends of the relay, played by the test over real sockets: each call is one step of a timeline."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterator
from typing import Any

from tests.kit.eventually import PATIENCE_S


class Peer:
    """One connection, as the test holds it."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self.socket.settimeout(PATIENCE_S)
        if opened.family != socket.AF_UNIX:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = bytearray()
        self._was_reset = False

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_until_blocked(self, data: bytes) -> int:
        """Send over and over until nobody takes it any more, or we are left; how many bytes were taken."""
        self.socket.settimeout(0.3)
        sent = 0
        try:
            while True:
                sent += self.socket.send(data)
        except TimeoutError:
            return sent
        except ConnectionResetError:
            self._was_reset = True  # the kernel says it once
            return sent
        finally:
            self.socket.settimeout(PATIENCE_S)

    def until(self, end: bytes) -> bytes:
        """Bytes up to and with ``end``."""
        while end not in self._read:
            self._receive()
        found = self._read.index(end) + len(end)
        return self._take(found)

    def exactly(self, size: int) -> bytes:
        while len(self._read) < size:
            self._receive()
        return self._take(size)

    def waiting(self) -> int:
        """Take what is there and all that comes until nothing does; how many bytes that was."""
        taken = len(self._take(len(self._read)))
        self.socket.settimeout(0.05)
        try:
            while data := self.socket.recv(1 << 20):
                taken += len(data)
        except TimeoutError:
            return taken
        finally:
            self.socket.settimeout(PATIENCE_S)
        return taken

    def _receive(self) -> None:
        data = self.socket.recv(1 << 20)
        assert data, f"the connection ended after {bytes(self._read[-1000:])!r}"
        self._read += data

    def _take(self, size: int) -> bytes:
        taken = bytes(self._read[:size])
        del self._read[:size]
        return taken

    def head(self) -> bytes:
        return self.until(b"\r\n\r\n")

    def rest(self) -> bytes:
        """Everything up to a clean end; raises ConnectionResetError for a reset."""
        parts = [self._take(len(self._read))]
        while data := self.socket.recv(65536):
            parts.append(data)
        return b"".join(parts)

    def end(self) -> str:
        """How the connection ended: "closed" or "reset"; whatever came before is thrown away."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            return "reset"
        return "reset" if self._was_reset else "closed"

    def is_silent(self, seconds: float = 0.1) -> bool:
        """Whether nothing comes for a while."""
        self.socket.settimeout(seconds)
        try:
            self._read += self.socket.recv(65536)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(PATIENCE_S)
        return False

    def reset(self) -> None:
        """Leave with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()


class ScriptedUpstream:
    """A server whose answers the test writes by hand."""

    def __init__(self, listener: socket.socket, context: ssl.SSLContext | None = None) -> None:
        self._listener = listener
        self._listener.settimeout(PATIENCE_S)
        self._context = context
        self.peers: list[Peer] = []

    @classmethod
    def on_tcp(cls, context: ssl.SSLContext | None = None) -> ScriptedUpstream:
        return cls(socket.create_server(("127.0.0.1", 0), backlog=2048), context)

    @classmethod
    def on_unix(cls, path: str) -> ScriptedUpstream:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        return cls(listener)

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        if self._listener.family == socket.AF_UNIX:
            return f"unix:{self._listener.getsockname()}"
        return f"{'https' if self._context else 'http'}://127.0.0.1:{self.port}"

    def accept(self) -> Peer:
        opened, _ = self._listener.accept()
        if self._context is not None:
            opened = self._context.wrap_socket(opened, server_side=True)
        peer = Peer(opened)
        self.peers.append(peer)
        return peer

    def nobody_came(self, seconds: float = 0.1) -> bool:
        self._listener.settimeout(seconds)
        try:
            opened, _ = self._listener.accept()
        except TimeoutError:
            return True
        finally:
            self._listener.settimeout(PATIENCE_S)
        opened.close()
        return False

    def close(self) -> None:
        self._listener.close()
        for peer in self.peers:
            peer.close()


def connect(port: int, *, receive_buffer: int = 0) -> Peer:
    opened = socket.socket()
    if receive_buffer:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    opened.settimeout(PATIENCE_S)
    try:
        opened.connect(("127.0.0.1", port))
    except OSError:
        opened.close()
        raise
    return Peer(opened)


@contextlib.contextmanager
def never_accepting() -> Iterator[str]:
    """The address of a server whose backlog is full, so that connecting to it takes forever."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(number: int) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"token %d"}}]}\n\n' % number


def post(path: str = "/v1/chat/completions", body: bytes = b'{"stream":true}', headers: bytes = b"") -> bytes:
    return (
        b"POST %b HTTP/1.1\r\nHost: relay\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n%b"
        % (path.encode(), len(body), headers, body)
    )  # fmt: skip


def get(path: str = "/health", headers: bytes = b"") -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: relay\r\n%b\r\n" % (path.encode(), headers)


@contextlib.contextmanager
def closing(*things: Any) -> Iterator[None]:
    try:
        yield
    finally:
        for thing in things:
            thing.close()
