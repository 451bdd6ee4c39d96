"""Sends what the relay saw to the observer, in packets, never waits for it, and hears what it asks.

What an observer that is slow or stopped does not take is queued, up to bounds. Under pressure large pieces of bodies
are left out first, then all bodies; the records of beginnings and ends have room of their own. Only beyond
that too they are lost, and the observer puts its books right by asking what is in flight.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from prefillwatch.relay.lag import LagHistogram
from prefillwatch.relay.reactor import EDGES, Reactor
from prefillwatch.units import MS
from prefillwatch.wire.in_flight import Ask, decode_ask
from prefillwatch.wire.tap import MAX_PACKET_BYTES, Kind, PacketBuilder, Payload, encode_payload, pieces, without_bodies

_INTERVAL_S: Final = 0.02
#: A gap seen by a relay that was late by as much is in part our own fault.
_LATE_NS: Final = 20_000_000
#: Bytes of packets that wait for an observer that is slow or starts anew. From here on large pieces of bodies are left
#: out, so that one bulky answer does not cost the tokens of others; the largest body that is shown (8 MiB) finds room.
BULK_ROOM: Final = 10 * 2**20
#: From here on all bodies are left out, until half of it has been taken: one long hole is better than many.
BODY_ROOM: Final = 16 * 2**20
#: This much more is for records without bodies alone: of some 20,000 requests, half a minute of 700 a second. With it,
#: what one relay holds for its observer is bounded.
BOOK_ROOM: Final = 8 * 2**20
#: A read of so many bytes is bulk. Tokens come in reads of a few hundred, and with log probabilities of a few thousand.
BULK_BYTES: Final = 8 * 1024
#: Packets that waited for an observer which is no more, and lose their bodies in one turn of the loop: half a
#: millisecond.
_THINNED_PER_TURN: Final = 2
#: There is no room, in the socket or in the kernel, which does not say when there is again; each flush tries.
_LATER: Final = frozenset((errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM))
#: Asks that are heard in one turn of the loop.
_ASKS_PER_TURN: Final = 16
#: At the very end.
_LAST_WAIT_S: Final = 0.5


class TapWriter:
    """Records of one relay process on their way out.

    For the hot path, ``add_record`` holds what appends a time, a key (stream id << 8 | kind) and a payload; calling all
    three adds a record. `keep_ticking` must hold meanwhile, so that the records leave within 20 ms.
    """

    def __init__(self, reactor: Reactor, fd: int, relay: int) -> None:
        self.lag = LagHistogram()
        self._reactor = reactor
        self._builder = PacketBuilder(relay, epoch=(time.time_ns() // MS ^ os.getpid() << 16) & 0xFFFFFFFF)
        times, keys, payloads = self._builder.columns
        self.add_record = (times.append, keys.append, payloads.append)
        self._socket = socket.socket(fileno=fd) if fd >= 0 else None
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._stale = 0  # packets at the head of the queue that are to lose their bodies before they are sent
        self._thinned: deque[bytes] = deque()
        self._thinned_marks: set[int] = set()
        self._sheds = False  # bodies are left out
        self._kept = 0  # records that wait in the builder, with their bodies left out already
        self._marked: set[int] = set()  # streams that were reported to have lost bytes
        self._armed = False
        self.keep_ticking = False
        self.skipped_bytes = 0  # of bodies that were left out for being bulk, or since the observer cannot read them
        self.on_ask: Callable[[Ask, tuple[int, ...]], None] = _ignore
        if self._socket is not None:
            self._socket.setblocking(False)
            reactor.register(fd, self._on_event, EDGES)

    @property
    def dropped(self) -> int:
        """Packets that this process dropped so far."""
        return self._builder.dropped

    def add(self, now: int, stream: int, kind: Kind, payload: bytes = b"") -> None:
        if self._builder.add(now, stream, kind, payload):
            self.flush()
        elif not self._armed:
            self._arm()

    def tell(self, now: int, stream: int, kind: Kind, payload: Payload) -> None:
        self.add(now, stream, kind, encode_payload(payload))

    def add_data(self, now: int, stream: int, data: bytes) -> None:
        """The payload bytes of one read of an answer."""
        if self._is_too_much(data):
            self.skip(now, stream, len(data))
            return
        for last, piece in pieces(data):
            self.add(now, stream, Kind.DATA if last else Kind.DATA_PART, piece)

    def add_body(self, now: int, stream: int, data: bytes) -> None:
        """Payload bytes of a request."""
        if self._is_too_much(data):
            self.skip(now, stream, len(data))
            return
        for _, piece in pieces(data):
            self.add(now, stream, Kind.REQUEST_BODY, piece)

    def _is_too_much(self, data: bytes) -> bool:
        return self._queued_bytes > BULK_ROOM and len(data) >= BULK_BYTES

    def skip(self, now: int, stream: int, size: int) -> None:
        """So many body bytes are not shown."""
        self.skipped_bytes += size
        self.add(now, stream, Kind.SKIPPED, size.to_bytes(8, "little"))

    def flush(self) -> None:
        """Send what was recorded so far, or queue it, or leave out of it what there is no room for."""
        self._drain()
        if (self._queue or self._thinned) and self._is_short_of_room():
            self._shed()
            if self._builder.size < MAX_PACKET_BYTES // 2:
                return  # what is left waits for more of its kind, or for room
        self._kept = 0
        if not self._builder:  # fifty times a second, however slow the streams
            return
        for packet in self._builder.take_all():
            if self._socket is None:
                continue
            if self._queue or self._thinned or not self._send(packet):
                self._enqueue(packet)

    def _is_short_of_room(self) -> bool:
        if self._sheds:
            self._sheds = self._queued_bytes > BODY_ROOM // 2
            if not self._sheds:
                self._marked.clear()
        else:
            self._sheds = self._queued_bytes + self._builder.size > BODY_ROOM
        return self._sheds

    def _shed(self) -> None:
        """Leave the bodies out of what was recorded since the last time."""
        builder = self._builder
        before = builder.size
        if builder.leave_out_bodies(self._kept, self._marked):
            builder.drop(1 + (before - builder.size) // MAX_PACKET_BYTES)
        self._kept = len(builder)

    def forget_bodies(self) -> None:
        """A new observer is there. Of what waited for the old one it needs the beginnings and the ends."""
        self._builder.dropped += len(self._queue) - self._stale
        self._stale = len(self._queue)
        self._thinned_marks.clear()
        self._reactor.soon(self._thin)

    def _thin(self) -> None:
        """A few packets per turn, so that no token waits."""
        for _ in range(min(_THINNED_PER_TURN, self._stale)):
            packet = self._queue.popleft()
            thin = without_bodies(packet, self._thinned_marks)
            self._queued_bytes += len(thin) - len(packet)
            self._thinned.append(thin)
            self._stale -= 1
        if self._stale:
            self._reactor.soon(self._thin)
            return
        self._thinned.extend(self._queue)
        self._queue, self._thinned = self._thinned, deque()
        self._thinned_marks.clear()
        self._drain()

    def close(self) -> None:
        """Send what is left; now that nothing else is to do, waiting a little for the observer is all right."""
        self.flush()
        for packet in self._builder.take_all():
            self._enqueue(packet)
        self._thinned.extend(self._queue)
        opened, self._socket = self._socket, None
        if opened is not None:
            opened.settimeout(_LAST_WAIT_S)
            with contextlib.suppress(OSError):
                for packet in self._thinned:
                    opened.send(packet)
            self._reactor.close(opened)

    def _arm(self) -> None:
        self._armed = True
        self._reactor.call_later(_INTERVAL_S, self._tick)

    def _tick(self) -> None:
        self._armed = False
        late_ns = self._reactor.late_ns
        self.lag.observe(late_ns * 1e-9)
        if late_ns >= _LATE_NS:
            self._builder.add(time.monotonic_ns(), 0, Kind.LATE, late_ns.to_bytes(8, "little"))
        self.flush()
        if self.keep_ticking:
            self._arm()

    def _send(self, packet: bytes) -> bool:
        """False: not now."""
        assert self._socket is not None
        try:
            self._socket.send(packet)
        except OSError as error:
            if error.errno in _LATER:
                return False
            self._builder.dropped += 1  # the other end is closed
        return True

    def _enqueue(self, packet: bytes) -> None:
        if self._queued_bytes + len(packet) > BODY_ROOM + BOOK_ROOM:
            self._builder.dropped += 1
            return
        self._queue.append(packet)
        self._queued_bytes += len(packet)

    def _drain(self) -> None:
        while self._queue and not self._stale and self._send(self._queue[0]):
            self._queued_bytes -= len(self._queue.popleft())

    def _on_event(self, events: int) -> None:
        self._drain()
        if self._kept and not self._queue:
            self.flush()
        if events & select.EPOLLIN:
            self._hear()

    def _hear(self) -> None:
        """Take what the observer asks."""
        for _ in range(_ASKS_PER_TURN):
            if self._socket is None:
                return
            try:
                packet = self._socket.recv(MAX_PACKET_BYTES)
            except OSError:  # nothing more, or the other end is closed
                return
            if not packet:
                return
            with contextlib.suppress(ValueError):  # not of our making
                ask, epoch, streams = decode_ask(packet)
                if epoch == self._builder.epoch:  # else it was meant for the process before
                    self.on_ask(ask, streams)
        self._reactor.soon(self._hear)


def _ignore(ask: Ask, streams: tuple[int, ...]) -> None:
    """Stands in until the relay says what it answers."""
