"""Takes the connections of the admin listener, so many and no more; who is silent longest makes room for the next."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
import struct
from collections.abc import Sequence
from typing import Final

from prefillwatch.door.conversation import REQUEST_LIMIT_S, Conversation, Pages
from prefillwatch.wire.faults import place_of

#: Connections at once. Scrapers, probes and viewers of the page are a few dozen.
MOST_CONNECTIONS: Final = 256
#: Descriptors left to the rest of the process; beyond them one connection may need two.
_RESERVED_DESCRIPTORS: Final = 32
#: This few are accepted even where there are hardly any descriptors.
_LEAST_CONNECTIONS: Final = 8
_ACCEPTS_PER_TURN: Final = 16
#: Without a free descriptor, accepting is tried again after this long.
_ACCEPT_PAUSE_S: Final = 0.1
#: What one connection may have sent ahead of what was read of it.
_READ_AHEAD_BYTES: Final = 16 << 10
#: For a client to take the last answer and to close its side.
_GOODBYE_S: Final = 2.0
_GOODBYE_BYTES: Final = 1 << 20
#: At most one log line in this time counts connections that were refused.
_LOG_EVERY_S: Final = 60.0

_RESET: Final = struct.pack("ii", 1, 0)

log = logging.getLogger(__name__)


class Door:
    """Serves the listeners from `open` to `close`. Nothing that comes in through it can make it end."""

    def __init__(
        self, listeners: Sequence[socket.socket], pages: Pages, tls: ssl.SSLContext | None = None, most: int = 0
    ) -> None:
        """``tls``: how connections from now on are spoken to; None: plainly. ``most`` connections; 0: what the process
        has descriptors for."""
        self._listeners = listeners
        self._pages = pages
        self.tls = tls
        self._most = most or _affordable()
        self._visits: dict[asyncio.Task[None], _Visit] = {}  # oldest first
        self._turned_away = 0
        self._logged_at = float("-inf")

    def open(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            listener.setblocking(False)
            loop.add_reader(listener.fileno(), self._accept, listener)

    async def close(self) -> None:
        """End every connection. The listeners stay open; they are their owner's."""
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            if listener.fileno() >= 0:
                loop.remove_reader(listener.fileno())
        for task in self._visits:
            task.cancel()
        if self._visits:
            await asyncio.wait(list(self._visits))

    # --- Connections ---

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                opened, _ = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._make_room()
                    self._pause(listener)
                    return
                continue  # that one has left already
            if len(self._visits) >= self._most and not self._make_room():
                opened.close()
                continue
            self._let_in(opened)

    def _let_in(self, opened: socket.socket) -> None:
        visit = _Visit(opened)
        task = asyncio.get_running_loop().create_task(visit.run(self._pages, self.tls))
        self._visits[task] = visit
        task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._visits.pop(task, None)

    def _make_room(self) -> bool:
        """Close the connection that has been without a request for longest. False: all are being answered."""
        self._log_one_more()
        silent = [
            (visit.waiting_since, task) for task, visit in self._visits.items() if visit.waiting_since is not None
        ]
        if not silent:
            return False
        _, task = min(silent, key=lambda each: each[0])
        self._visits.pop(task).abort()
        task.cancel()
        return True

    def _pause(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener.fileno())

        def resume() -> None:
            if listener.fileno() >= 0:
                loop.add_reader(listener.fileno(), self._accept, listener)

        loop.call_later(_ACCEPT_PAUSE_S, resume)

    def _log_one_more(self) -> None:
        self._turned_away += 1
        now = asyncio.get_running_loop().time()
        if now - self._logged_at >= _LOG_EVERY_S:
            log.warning(
                "admin listener: more than %d connections; the longest silent are closed (%d since the last such line)",
                self._most,
                self._turned_away,
            )
            self._logged_at, self._turned_away = now, 0


class _Visit:
    """One connection, from accepting it to its end."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._since = asyncio.get_running_loop().time()
        self._transport: asyncio.Transport | None = None
        self._conversation: Conversation | None = None

    @property
    def waiting_since(self) -> float | None:
        return self._conversation.waiting_since if self._conversation is not None else self._since

    async def run(self, pages: Pages, tls: ssl.SSLContext | None) -> None:
        try:
            reader, writer = await self._begin(tls)
            self._conversation = Conversation(reader, writer, pages)
            await self._conversation.run()
            await asyncio.wait_for(_say_goodbye(reader, writer), _GOODBYE_S)
        except (OSError, EOFError, asyncio.TimeoutError):
            pass  # the client's fault, or its wish
        except Exception as error:
            if not self._has_gone(error):
                log.error("admin listener: %s; please report it", place_of(error))
        finally:
            self.abort()

    def _has_gone(self, error: Exception) -> bool:
        """Whether it is uvloop's error for writing to a connection that has ended meanwhile."""
        return isinstance(error, RuntimeError) and self._transport is not None and self._transport.is_closing()

    def abort(self) -> None:
        if self._transport is not None:
            if self.waiting_since is None and not self._transport.is_closing():
                opened = self._transport.get_extra_info("socket")
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)  # half an answer must not look whole
            self._transport.abort()
        else:
            self._socket.close()

    async def _begin(self, tls: ssl.SSLContext | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._socket.setblocking(False)
        # asyncio does that only for sockets that name their protocol; else an answer in two pieces takes 40 ms more.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_READ_AHEAD_BYTES, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        limit = REQUEST_LIMIT_S if tls is not None else None
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, self._socket, ssl=tls, ssl_handshake_timeout=limit
        )
        self._transport = transport
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _say_goodbye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close without a reset, which would take the answer away from a client that is still sending."""
    if writer.can_write_eof():
        writer.write_eof()
        left = _GOODBYE_BYTES
        while left > 0 and (data := await reader.read(_READ_AHEAD_BYTES)):
            left -= len(data)
    writer.close()
    await writer.wait_closed()


def _affordable() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(_LEAST_CONNECTIONS, min(MOST_CONNECTIONS, (limit - _RESERVED_DESCRIPTORS) // 2))
