"""Somebody who can open connections: what is sent is counted as it would cost a link, and answers are read strictly."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

#: What Ethernet, IP and TCP add to the bytes of a packet, and the packets of opening and closing a connection.
PACKET_BYTES = 66
_SEGMENT_BYTES = 1448
CONNECTION_PACKETS = 7
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Reply:
    """What came back: a status, or 0 for a connection that was closed without an answer."""

    status: int
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""

    @property
    def retry_after(self) -> bool:
        return b"retry-after" in self.headers


CLOSED = Reply(0)


class Link:
    """Counts what leaves, in bytes on the wire. With ``bits_per_second``, sending waits as a link that slow would."""

    def __init__(self, bits_per_second: float = 0.0) -> None:
        self.bytes = 0
        self._rate = bits_per_second / 8
        self._free_at = time.monotonic()

    def pass_on(self, size: int, packets: int) -> None:
        cost = size + packets * PACKET_BYTES
        self.bytes += cost
        if self._rate:
            self._free_at = max(self._free_at, time.monotonic() - 0.05) + cost / self._rate
            time.sleep(max(0.0, self._free_at - time.monotonic()))


class Line:
    """One connection."""

    def __init__(self, opened: socket.socket, link: Link) -> None:
        self.socket = opened
        self._link = link
        self._buffer = b""
        self.is_open = True

    def send(self, data: bytes, piece: int = 0) -> Line:
        """All of it, or as much as the other side takes before it closes; in writes of ``piece`` bytes if given."""
        view, step = memoryview(data), piece or 64 * 1024
        try:
            for at in range(0, len(data), step):
                part = view[at : at + step]
                self._link.pass_on(len(part), -(-len(part) // _SEGMENT_BYTES))
                self.socket.sendall(part)
        except OSError:
            self.is_open = False
        return self

    def replies(self, count: int = 1, patience_s: float = PATIENCE_S) -> list[Reply]:
        """The next answers; the last is `CLOSED` where the connection ended instead."""
        found: list[Reply] = []
        self.socket.settimeout(patience_s)
        try:
            while len(found) < count:
                found.append(self._reply())
        except (OSError, EOFError):
            found.append(CLOSED)
        return found

    def begun(self, patience_s: float) -> Reply:
        """The head of an answer that goes on for ever."""
        self.socket.settimeout(patience_s)
        try:
            return self._head()
        except (OSError, EOFError):
            return CLOSED

    def _reply(self) -> Reply:
        head = self._head()
        return Reply(head.status, head.headers, self._body(head.status, head.headers))

    def _head(self) -> Reply:
        while True:
            head = self._until(b"\r\n\r\n")
            status, *lines = head[:-4].split(b"\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
            code = int(status.split(b" ")[1])
            if code >= 200:
                return Reply(code, headers)

    def _body(self, code: int, headers: dict[bytes, bytes]) -> bytes:
        if code in (204, 304):
            return b""
        if b"chunked" in headers.get(b"transfer-encoding", b""):
            parts = []
            while size := int(self._until(b"\r\n").split(b";")[0], 16):
                parts.append(self._exactly(size + 2)[:-2])
            self._until(b"\r\n")
            return b"".join(parts)
        if b"content-length" in headers:
            return self._exactly(int(headers[b"content-length"]))
        with contextlib.suppress(EOFError):
            while True:
                self._more()
        rest, self._buffer = self._buffer, b""
        return rest

    def _until(self, mark: bytes) -> bytes:
        while (end := self._buffer.find(mark)) < 0:
            self._more()
        end += len(mark)
        found, self._buffer = self._buffer[:end], self._buffer[end:]
        return found

    def _exactly(self, size: int) -> bytes:
        parts = [self._buffer]
        got = len(self._buffer)
        while got < size:
            data = self.socket.recv(min(size - got, 1 << 20))
            if not data:
                raise EOFError
            parts.append(data)
            got += len(data)
        whole = b"".join(parts)
        self._buffer = whole[size:]
        return whole[:size]

    def _more(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise EOFError
        self._buffer += data

    def reset(self) -> None:
        """Leave with a RST."""
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.is_open = False
        self.socket.close()


class Stranger:
    """Attacks one address. All its connections are closed when the attack is over."""

    def __init__(
        self, address: tuple[str, int] | str, link: Link | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.address = address
        self.tls = tls
        self.link = link or Link()
        self.lines: list[Line] = []
        self.engine = ""  # where the plugin inside vLLM would connect
        self.wait: Callable[[float], None] = time.sleep

    def connect(self, receive_buffer: int = 0, *, handshake: bool = True) -> Line:
        family = socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET
        opened = socket.socket(family, socket.SOCK_STREAM)
        if receive_buffer:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        opened.settimeout(PATIENCE_S)
        self.link.pass_on(0, CONNECTION_PACKETS)
        try:
            opened.connect(self.address)
            if family == socket.AF_INET:
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls is not None and handshake:
                self.link.pass_on(_HANDSHAKE_BYTES, 2)
                opened = self.tls.wrap_socket(opened, server_hostname="127.0.0.1")
        except OSError:  # refused, or closed at once: what comes back tells
            pass
        line = Line(opened, self.link)
        self.lines.append(line)
        return line

    def say(self, data: bytes, *, answers: int = 1, piece: int = 0) -> list[Reply]:
        """On a connection of its own: send, read so many answers, close."""
        line = self.connect()
        found = line.send(data, piece).replies(answers)
        line.close()
        return found

    def all_at_once(self, datas: Sequence[bytes], *, answers: int = 1) -> list[Reply]:
        """Each on a connection of its own, in parallel and as fast as they are taken; then an answer from each."""
        lines = [self.connect() for _ in datas]
        with selectors.DefaultSelector() as selector:
            for line, data in zip(lines, datas, strict=True):
                line.socket.setblocking(False)
                selector.register(line.socket, selectors.EVENT_WRITE, (line, memoryview(data)))
            deadline = time.monotonic() + PATIENCE_S
            while selector.get_map() and time.monotonic() < deadline:
                for key, _ in selector.select(1.0):
                    self._some(selector, key)
        return [reply for line in lines for reply in line.replies(answers)]

    def _some(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        line, view = key.data
        try:
            sent = line.socket.send(view[:65536])
        except BlockingIOError:
            return
        except OSError:
            selector.unregister(key.fileobj)
            return
        self.link.pass_on(sent, -(-sent // _SEGMENT_BYTES))
        if sent == len(view):
            selector.unregister(key.fileobj)
        else:
            selector.modify(key.fileobj, selectors.EVENT_WRITE, (line, view[sent:]))

    def fates(self, lines: Iterable[Line], within_s: float) -> list[Reply]:
        """What became of connections within this time: an answer, `CLOSED`, or nothing for those still open."""
        end, found = time.monotonic() + within_s, []
        for line in lines:
            line.socket.settimeout(max(0.001, end - time.monotonic()))
            try:
                found.append(line._reply())
            except TimeoutError:
                continue
            except (OSError, EOFError):
                found.append(CLOSED)
        return found

    def leave(self) -> None:
        for line in self.lines:
            line.close()
        self.lines.clear()


#: A ClientHello and what a client says afterwards, of TLS 1.3.
_HANDSHAKE_BYTES = 600
