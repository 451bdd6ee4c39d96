"""The relay's two readers without sockets, so that every cut of many inputs can be tried.

Both are the relay's own: `ClientConnection` on a socket that gives what it is told to, and `ExchangeCore`. Only what
lies around them is played.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, cast

from prefillwatch.relay.client import ClientConnection
from prefillwatch.relay.exchange.commands import Connect, Farewell, Leave, Over, Tell, ToClient
from prefillwatch.relay.exchange.core import ExchangeCore, Policy
from prefillwatch.relay.exchange.state import READING
from prefillwatch.relay.http_head import Request, parse_request
from prefillwatch.relay.relay import Relay
from prefillwatch.settings.declared import DEFAULTS
from prefillwatch.settings.views import relay_view
from prefillwatch.wire.tap import Kind

#: What became of the bytes of one client: requests (method, target, header lines, body), and the status of a refusal.
Heard = list[tuple[bytes, ...]]


class _Reactor:
    """A loop whose turns are taken by hand."""

    def __init__(self) -> None:
        self.handlers: dict[int, Any] = {}
        self.waiting: list[Callable[[], None]] = []

    def register(self, fd: int, handler: Any, mask: int = 0) -> None:
        self.handlers[fd] = handler

    def register_back(self, fd: int, handler: Any, mask: int = 0) -> None:
        self.handlers[fd] = handler

    def to_front(self, fd: int) -> None:
        """There is no queue."""

    def soon(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    soon_back = soon

    def guarded(self, callback: Callable[[], object]) -> None:
        callback()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Nothing is late here."""

    def call_at(self, due_ns: int, callback: Callable[[], None]) -> None:
        """Nothing is late here."""

    def forget(self, fd: int) -> None:
        self.handlers.pop(fd, None)

    def close(self, opened: Any) -> None:
        """Nothing is open."""

    def turn(self) -> None:
        while self.waiting:
            callbacks, self.waiting = self.waiting, []
            for callback in callbacks:
                callback()


class _Socket:
    """Gives the pieces it was handed, one in a read."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def fileno(self) -> int:
        return 1

    def recv(self, size: int) -> bytes:
        if not self.pieces:
            raise BlockingIOError
        piece = self.pieces.pop(0)
        if len(piece) > size:
            self.pieces.insert(0, piece[size:])
        return piece[:size]

    def send(self, data: Any) -> int:
        return len(data)

    def shutdown(self, how: int) -> None: ...

    def setsockopt(self, *option: Any) -> None: ...


class _Exchange:
    """Is answered as soon as it is complete."""

    def __init__(self, client: ClientConnection, request: Request, heard: Heard) -> None:
        self._client, self._request, self._heard = client, request, heard

    def open(self, first_ns: int) -> None: ...

    def tap_body(self, payload: bytes, now: int) -> None: ...

    def begin(self, body: Any, *_: Any) -> None:
        request = self._request
        lines = b"\n".join(header.line for header in request.headers)
        self._heard.append((request.method, request.target, lines, body.whole(), repr(body.trailers).encode()))
        self._client.exchange_over(Farewell.NEXT if request.keep_alive else Farewell.CLOSE, b"")

    def reject(self, status: int, reason: str, message: str) -> None:
        self._heard.append((b"refused %d %b" % (status, reason.encode()),))
        self._client.exchange_over(Farewell.CLOSE, b"")

    def client_unblocked(self) -> None: ...

    def client_gone(self, *_: Any) -> None: ...

    def crash(self) -> None: ...


class Receiver:
    """Feeds clients' bytes to the relay's receiving side."""

    def __init__(self, **options: Any) -> None:
        self._relay = Relay(relay_view(DEFAULTS, upstream="http://127.0.0.1:1", listen_fds=(), **options))
        self._reactor = _Reactor()
        self._relay.reactor.release()
        self._relay.reactor = cast("Any", self._reactor)

    def hear(self, pieces: Iterable[bytes]) -> Heard:
        heard: Heard = []
        relay = cast("Any", self._relay)
        relay.new_exchange = lambda client, request: _Exchange(client, request, heard)
        opened = _Socket()
        client = ClientConnection(relay, cast("Any", opened), None)
        for piece in pieces:
            if not piece:
                continue
            opened.pieces.append(piece)
            client._on_event(1)
            self._reactor.turn()
        client.abort()
        return heard


def pieces_of(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    return [data[start:end] for start, end in pairwise([0, *sorted(cuts), len(data)])]


class _Passing:
    """What comes out of an exchange."""

    def __init__(self, core: ExchangeCore) -> None:
        self.core = core
        self.client, self.shown = b"", b""
        self.end: tuple[Any, ...] = ()

    def read(self, piece: bytes) -> None:
        self._carry_out(self.core.read(piece, 4))
        while self.core.is_behind and self.core.state in READING:
            self._carry_out(self.core.read(b"", 4))

    def close(self) -> None:
        self._carry_out(self.core.upstream_gone(5, clean=True, may_repeat=False, unread=False))

    def _carry_out(self, commands: Iterable[Any]) -> None:
        for command in commands:
            if isinstance(command, ToClient):
                self.client += command.data
            elif isinstance(command, Tell) and command.kind is Kind.DATA:
                self.shown += cast("bytes", command.payload)
            elif isinstance(command, Over):
                self.end = (command.farewell, command.words[:12])
            elif isinstance(command, Leave | Connect):  # whether bytes follow an answer is known once they are there
                self.end = (type(command),)


def hear_answer(request: bytes, pieces: Iterable[bytes], *, closes: bool, inject: bool = False) -> tuple[Any, ...]:
    """What the client gets of an answer that comes in these pieces, what the tap is shown of it, and how it ends."""
    core = ExchangeCore(parse_request(request), Policy(inject_usage=inject))
    core.open(1)
    core.complete(0, 2)
    core.connected(injected=inject)
    core.sent(3)
    passing = _Passing(core)
    for piece in pieces:
        if piece and core.state in READING:
            passing.read(piece)
    if closes and core.state in READING:
        passing.close()
    return passing.client, passing.shown, passing.end, core.state
