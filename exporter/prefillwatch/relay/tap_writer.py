"""Sends what the relay saw to the observer, in packets, and never waits for it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections import deque
from typing import Final

from prefillwatch.relay.lag import LagHistogram
from prefillwatch.relay.reactor import EDGES, Reactor
from prefillwatch.wire.tap import Kind, PacketBuilder, Payload, encode_payload, pieces

_INTERVAL_S: Final = 0.02
#: A gap seen by a relay that was late by as much is in part our own fault.
_LATE_NS: Final = 20_000_000
#: Packets that wait for an observer that is slow or starts anew; beyond it they are dropped.
_MAX_QUEUED_BYTES: Final = 16 * 2**20
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
        self._builder = PacketBuilder(relay, _new_epoch())
        times, keys, payloads = self._builder.columns
        self.add_record = (times.append, keys.append, payloads.append)
        self._socket = _packet_socket(fd) if fd >= 0 else None
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._armed = False
        self.keep_ticking = False
        if self._socket is not None:
            reactor.register(fd, self._on_event, EDGES & ~select.EPOLLIN)

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
        for last, piece in pieces(data):
            self.add(now, stream, Kind.DATA if last else Kind.DATA_PART, piece)

    def add_body(self, now: int, stream: int, data: bytes) -> None:
        """Payload bytes of a request."""
        for _, piece in pieces(data):
            self.add(now, stream, Kind.REQUEST_BODY, piece)

    def flush(self) -> None:
        """Send what was recorded so far, or queue it, or drop it."""
        for packet in self._builder.take_all():
            if self._socket is None:
                continue
            if self._queue or not self._send(packet):
                self._enqueue(packet)

    def forget_queue(self) -> None:
        """A new observer has no use for what was meant for the old one."""
        self._builder.dropped += len(self._queue)
        self._queue.clear()
        self._queued_bytes = 0

    def close(self) -> None:
        """Send what is left; now that nothing else is to do, waiting a little for the observer is all right."""
        self.flush()
        opened, self._socket = self._socket, None
        if opened is not None:
            opened.settimeout(_LAST_WAIT_S)
            with contextlib.suppress(OSError):
                for packet in self._queue:
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
        except BlockingIOError:
            return False
        except OSError:  # nobody holds the other end any more
            self._builder.dropped += 1
        return True

    def _enqueue(self, packet: bytes) -> None:
        if self._queued_bytes + len(packet) > _MAX_QUEUED_BYTES:
            self._builder.dropped += 1
            return
        self._queue.append(packet)
        self._queued_bytes += len(packet)

    def _on_event(self, _events: int) -> None:
        while self._queue and self._send(self._queue[0]):
            self._queued_bytes -= len(self._queue.popleft())


def _packet_socket(fd: int) -> socket.socket:
    opened = socket.socket(fileno=fd)
    opened.setblocking(False)
    return opened


def _new_epoch() -> int:
    return (time.time_ns() // 1_000_000 ^ os.getpid() << 16) & 0xFFFFFFFF
