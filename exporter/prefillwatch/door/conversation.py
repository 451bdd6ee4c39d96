"""HTTP on one connection of the admin listener: bounded in size and time, whatever client it is.

`Conversation` reads requests by h11, whose limit on heads is ours; what it answers by itself is decided by `Pages`, and
all else goes on to the server behind the door, whose answer comes back piece by piece.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from typing import Final, Protocol

import h11
import msgspec

from prefillwatch.door.headers import GUARDS
from prefillwatch.door.hosts import Hosts

#: The head of a request, as of uvicorn with h11; real ones have some hundred bytes.
MOST_HEAD_BYTES: Final = 64 << 10
#: Nothing here takes a body, but a client may send a small one.
MOST_BODY_BYTES: Final = 64 << 10
#: For a whole request, from its first byte; and for the first byte, on a new connection.
REQUEST_LIMIT_S: Final = 10.0
#: Between two requests: above any usual scrape interval, so that scrapers keep their connection.
KEEP_ALIVE_S: Final = 75.0
#: For the beginning of an answer from behind the door; below the 10 s after which Prometheus gives up by itself.
ANSWER_LIMIT_S: Final = 8.0
#: The same where something is to be done first, such as writing a file.
WORK_LIMIT_S: Final = 60.0
#: For the next bytes of an answer, from behind the door or into a client that reads slowly.
PIECE_LIMIT_S: Final = 30.0

_READ_BYTES: Final = 64 << 10
_OF_THE_CONNECTION: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade", b"expect")
)


class NotThereError(Exception):
    """The observer takes no request now; the message says why."""


class Behind(Protocol):
    """Who answers what is passed on."""

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A new connection to it. Waits for it while it starts. Raises NotThereError."""


#: Status and a document for JSON.
Page = Callable[[], tuple[int, object]]


@dataclass(frozen=True)
class Pages:
    """What is answered at the door: ``own`` by path, ``hosts`` None: whatever Host is asked for."""

    behind: Behind
    own: Mapping[str, Page]
    hosts: Hosts | None = None


@dataclass(frozen=True)
class _Asked:
    head: h11.Request
    body: bytes

    @property
    def path(self) -> str:
        return self.head.target.partition(b"?")[0].decode("ascii", "replace")

    @property
    def host(self) -> str:
        return next((value.decode("latin-1") for name, value in self.head.headers if name == b"host"), "")


class _Refusal(Exception):  # noqa: N818 (an answer, not an error of ours)
    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}


class Conversation:
    """One connection's life. ``waiting_since``, a time of the loop, is when its next request may have begun; None while
    one is answered."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pages: Pages) -> None:
        self.waiting_since: float | None = asyncio.get_running_loop().time()
        self._reader = reader
        self._writer = writer
        self._pages = pages
        self._wants_head_only = False
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD_BYTES)

    async def run(self) -> None:
        """To the end of the connection. Raises OSError or asyncio.TimeoutError where the client is to blame."""
        first_byte_s = REQUEST_LIMIT_S
        while (asked := await self._next_request(first_byte_s)) is not None:
            self.waiting_since = None
            await self._answer(asked)
            await asyncio.sleep(
                0
            )  # a client that sends a thousand requests at once waits for the others, not they for it
            self.waiting_since = asyncio.get_running_loop().time()
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()
            first_byte_s = KEEP_ALIVE_S

    # --- Requests ---

    async def _next_request(self, first_byte_s: float) -> _Asked | None:
        """None: there will be no more."""
        try:
            if not self._http.trailing_data[0] and not await asyncio.wait_for(self._read(), first_byte_s):
                return None
            return await asyncio.wait_for(self._receive(), REQUEST_LIMIT_S)
        except asyncio.TimeoutError:
            if self._http.trailing_data[0]:  # it had begun
                await self._refuse(_Refusal(408, "the request did not come whole in time"))
            return None
        except h11.RemoteProtocolError as error:
            await self._refuse(_Refusal(error.error_status_hint, _reason(error.error_status_hint)))
            return None
        except _Refusal as refusal:
            await self._refuse(refusal)
            return None

    async def _read(self) -> bool:
        """Take in what comes; False at the end."""
        data = await self._reader.read(_READ_BYTES)
        self._http.receive_data(data)
        return bool(data)

    async def _receive(self) -> _Asked | None:
        head, body = None, bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    self._send(h11.InformationalResponse(status_code=100, headers=[]))
                await self._read()
            elif isinstance(event, h11.Request):
                head = event
                self._wants_head_only = event.method == b"HEAD"
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MOST_BODY_BYTES:
                    raise _Refusal(413, f"nothing here takes more than {MOST_BODY_BYTES} bytes")
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                return _Asked(head, bytes(body))
            else:  # the connection ended
                return None

    # --- Answers ---

    async def _answer(self, asked: _Asked) -> None:
        own = self._pages.own.get(asked.path)
        hosts = self._pages.hosts
        try:
            if own is not None:
                await self._answer_ourselves(asked, own)
            elif hosts is not None and not hosts.admit(asked.host):
                raise _Refusal(
                    421, f"{asked.host[:100]!r} is no name of this listener; ask for its address, or set admin_hosts"
                )
            else:
                await self._pass_on(asked)
        except _Refusal as refusal:
            await self._refuse(refusal)

    async def _answer_ourselves(self, asked: _Asked, page: Page) -> None:
        if asked.head.method not in (b"GET", b"HEAD"):
            raise _Refusal(405, "Method Not Allowed", {"Allow": "GET, HEAD"})
        status, document = page()
        await self._say(status, document)

    async def _refuse(self, refusal: _Refusal) -> None:
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self._say(refusal.status, {"error": str(refusal)}, refusal.headers)

    async def _say(self, status: int, document: object, more: Mapping[str, str] | None = None) -> None:
        body = msgspec.json.encode(document)
        headers = {
            "Date": formatdate(usegmt=True),
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **GUARDS,
            **(more or {}),
        }
        self._send(h11.Response(status_code=status, headers=list(headers.items())))
        if not self._wants_head_only:
            self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())
        await self._let_out()

    def _send(self, event: h11.Event) -> None:
        if data := self._http.send(event):
            self._writer.write(data)

    async def _let_out(self) -> None:
        await asyncio.wait_for(self._writer.drain(), PIECE_LIMIT_S)

    # --- What is passed on ---

    async def _pass_on(self, asked: _Asked) -> None:
        limit_s = ANSWER_LIMIT_S if asked.head.method in (b"GET", b"HEAD") else WORK_LIMIT_S
        passage = _Passage(self._pages.behind)
        try:
            try:
                response = await asyncio.wait_for(passage.ask(asked), limit_s)
            except asyncio.TimeoutError:
                raise _unavailable(f"the observer is busy: no answer within {limit_s:g} s; ask again") from None
            except NotThereError as error:
                raise _unavailable(str(error)) from None
            headers = [(name, value) for name, value in response.headers if name not in _OF_THE_CONNECTION]
            self._send(h11.Response(status_code=response.status_code, reason=response.reason, headers=headers))
            while isinstance(event := await asyncio.wait_for(passage.event(), PIECE_LIMIT_S), h11.Data):
                self._send(h11.Data(data=event.data))
                await self._let_out()
            if not isinstance(event, h11.EndOfMessage):
                raise ConnectionAbortedError("the answer was cut off behind the door")
            self._send(h11.EndOfMessage())
            await self._let_out()
        except h11.ProtocolError:
            raise ConnectionAbortedError("the answer was cut off behind the door") from None
        finally:
            passage.close()


class _Passage:
    """One request to the server behind the door, and its answer."""

    def __init__(self, behind: Behind) -> None:
        self._behind = behind
        self._http = h11.Connection(h11.CLIENT)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, asked: _Asked) -> h11.Response:
        """The head of the answer. A server that ends before it answers is asked again when it is back, if that can do
        no harm. Raises NotThereError."""
        while True:
            with contextlib.suppress(OSError, h11.RemoteProtocolError):
                await self._begin(asked)
                while not isinstance(event := await self.event(), h11.ConnectionClosed):
                    if isinstance(event, h11.Response):
                        return event
            if asked.head.method not in (b"GET", b"HEAD"):
                raise NotThereError("the observer ended before it answered")
            self.close()
            self._http = h11.Connection(h11.CLIENT)
            await asyncio.sleep(0.1)

    async def _begin(self, asked: _Asked) -> None:
        self._reader, self._writer = await self._behind.open()
        headers = [(name, value) for name, value in asked.head.headers if name not in _OF_THE_CONNECTION]
        headers = [(name, value) for name, value in headers if name not in (b"content-length", b"transfer-encoding")]
        if not any(name == b"host" for name, _ in headers):
            headers.append((b"host", b"localhost"))
        headers += [(b"connection", b"close"), (b"content-length", b"%d" % len(asked.body))]
        head = h11.Request(method=asked.head.method, target=asked.head.target, headers=headers)
        for event in (head, h11.Data(data=asked.body), h11.EndOfMessage()):
            if data := self._http.send(event):
                self._writer.write(data)
        await self._writer.drain()

    async def event(self) -> h11.Event:
        """The next event that is not informational."""
        assert self._reader is not None
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(_READ_BYTES))
            elif isinstance(event, h11.Event) and not isinstance(event, h11.InformationalResponse):
                return event

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()


def _unavailable(message: str) -> _Refusal:
    return _Refusal(503, message, {"Retry-After": "5"})


def _reason(status: int) -> str:
    too_long = f"the head of the request has more than {MOST_HEAD_BYTES} bytes"
    return too_long if status == 431 else "this is no HTTP request"
