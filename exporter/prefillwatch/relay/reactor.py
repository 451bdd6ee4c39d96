"""The event loop of a relay: edge-triggered epoll, a few timers, nothing else.

One token costs one receive and one send here, and what Python adds to that decides whether the relay can be afforded.
A general loop adds 1–2 µs per token for transports, buffers and callbacks that this process has no use for.

Rules that users of the loop obey:

- Sockets are registered once, for reading and writing, edge-triggered. A handler that stops reading early must come
  back by itself (`soon`): the kernel does not say it twice.
- What strangers can make as much of as they like is *at the back*: connections, handshakes, requests, and upstream's
  answers before they are streams. A turn gives it a millisecond; the rest waits for the next, so that tokens,
  which are at the front, come in between. Nothing at the front pays for it: a second epoll, watched by the first, holds
  what is at the back.
- A closed descriptor's number may come back at once, while events for its old owner wait in the same batch. So sockets
  are closed through `close`, which takes effect between batches.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from prefillwatch.relay.alarm import NEVER, Alarm
from prefillwatch.units import NS

monotonic_ns = time.monotonic_ns
Handler = Callable[[int], None]

_MAX_EVENTS: Final = 512
EDGES: Final = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
#: What an event says when there is something to read, room to write, and nothing else.
QUIET: Final = select.EPOLLIN | select.EPOLLOUT
ENDED: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


#: Longest that a turn works at the back, but for the end of the piece that it is at: so much a token waits at most.
#: Long enough for five requests or so, beside which what the turns themselves cost does not show.
_BACK_NS: Final = 1_000_000
#: Where the system knows no limit; more than any machine has ports for.
_UNLIMITED: Final = 1 << 20


def _ignore(events: int) -> None:
    """Handler of a descriptor that is about to be closed."""


class Reactor:
    """One loop, for one thread. ``late_ns`` is how late the timer that runs right now is."""

    def __init__(self, on_crash: Callable[[Handler, Exception], None]) -> None:
        self.handlers: dict[int, Handler] = {}
        self.late_ns = 0
        self._on_crash = on_crash
        self._epoll = select.epoll()
        self._back = select.epoll()
        self._at_back: set[int] = set()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._soon: deque[Callable[[], None]] = deque()
        self._soon_back: deque[Callable[[], None]] = deque()
        self._closing: list[socket.socket] = []
        self._unsettled = False  # something is to do before the next sleep
        self._alarm = Alarm()
        self._rings = NEVER  # what the alarm is set to
        self._stopped = False
        self._calls: deque[Callable[[], None]] = deque()
        self._wake_reader, self._wake_writer = socket.socketpair()
        for end in (self._wake_reader, self._wake_writer):
            end.setblocking(False)
        self.register(self._alarm.fd, self._on_alarm, select.EPOLLIN | select.EPOLLET)
        self.register(self._wake_reader.fileno(), self._on_wake, select.EPOLLIN)
        self.register(self._back.fileno(), self._on_back, select.EPOLLIN)
        self._back_waits = False
        self._signals: dict[int, Callable[[], None]] = {}

    # --- Descriptors ---

    def register(self, fd: int, handler: Handler, mask: int = EDGES) -> None:
        """Watch a descriptor. Raises OSError."""
        self.handlers[fd] = handler
        self._epoll.register(fd, mask)

    def register_back(self, fd: int, handler: Handler, mask: int = EDGES) -> None:
        """Watch a descriptor at the back. Raises OSError."""
        self.handlers[fd] = handler
        self._back.register(fd, mask)
        self._at_back.add(fd)

    def to_front(self, fd: int) -> None:
        """What comes for this descriptor must not wait from now on; what is there already is reported anew."""
        if fd in self._at_back:
            self._at_back.discard(fd)
            self._back.unregister(fd)
            self._epoll.register(fd, EDGES)

    def to_back(self, fd: int) -> None:
        """What comes for it can wait again."""
        if fd not in self._at_back:
            self._epoll.unregister(fd)
            self._back.register(fd, EDGES)
            self._at_back.add(fd)

    def forget(self, fd: int) -> None:
        """Watch it no more; it stays open."""
        self.handlers[fd] = _ignore
        with contextlib.suppress(OSError):
            (self._back if fd in self._at_back else self._epoll).unregister(fd)
        self._at_back.discard(fd)

    def close(self, opened: socket.socket) -> None:
        """Close a socket as soon as no event of this batch can be for it."""
        self.handlers[opened.fileno()] = _ignore
        self._closing.append(opened)
        self._unsettled = True

    # --- Time ---

    def call_at(self, due_ns: int, callback: Callable[[], None]) -> None:
        """Call once the monotonic clock has reached ``due_ns``. It cannot be cancelled, so callbacks look first."""
        heapq.heappush(self._timers, (due_ns, next(self._count), callback))
        if due_ns < self._rings:
            self._unsettled = True  # so that the alarm is set before the next sleep

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.call_at(monotonic_ns() + int(seconds * NS), callback)

    def soon(self, callback: Callable[[], None]) -> None:
        """Call in the next turn, after the events that wait by then."""
        self._soon.append(callback)
        self._unsettled = True

    def soon_back(self, callback: Callable[[], None]) -> None:
        """Call in one of the next turns, at the back."""
        self._soon_back.append(callback)
        self._unsettled = True

    # --- From outside ---

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        """Call in the loop's thread."""
        self._calls.append(callback)
        with contextlib.suppress(BlockingIOError):
            self._wake_writer.send(b"\0")

    def on_signal(self, number: int, callback: Callable[[], None]) -> None:
        """Call upon a signal. Only in the main thread."""
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        signal.signal(number, lambda *_: self._calls.append(callback))

    def guarded(self, callback: Callable[[], object]) -> None:
        """Call now. What it raises is reported as if the loop had called it, and ends what it belongs to."""
        try:
            callback()
        except Exception as error:  # see run
            self._on_crash(callback, error)  # type: ignore[arg-type]

    def stop(self) -> None:
        self._stopped = True

    # --- The loop ---

    def run(self) -> None:
        """Run until `stop`."""
        handlers, poll = self.handlers, self._epoll.poll
        self._settle()
        while not self._stopped:
            for fd, events in poll(0 if self._unsettled else None, _MAX_EVENTS):
                try:
                    handlers[fd](events)
                except Exception as error:  # noqa: PERF203 - one broken exchange must not take the others with it
                    self._on_crash(handlers[fd], error)
            if self._unsettled:
                self._settle()

    def release(self) -> None:
        """Give back the loop's own descriptors."""
        self._close_now()
        self._epoll.close()
        self._back.close()
        self._alarm.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def _settle(self) -> None:
        """What comes between two batches. At its end the alarm is set to the earliest timer."""
        for _ in range(len(self._soon)):
            self.guarded(self._soon.popleft())
        if self._back_waits or self._soon_back:
            self._run_back(monotonic_ns())
        timers = self._timers
        while timers and timers[0][0] <= (now := monotonic_ns()):
            while timers and timers[0][0] <= now:
                due, _, callback = heapq.heappop(timers)
                self.late_ns = now - due
                self.guarded(callback)
        self._close_now()
        due = timers[0][0] if timers else NEVER
        if due != self._rings:
            self._alarm.set(due)
            self._rings = due
        self._unsettled = bool(self._soon or self._soon_back)

    def _on_alarm(self, _events: int) -> None:
        self._rings = NEVER
        self._unsettled = True

    def _on_back(self, _events: int) -> None:
        """Something is at the back: it comes after all that is at the front in this batch."""
        self._back_waits = self._unsettled = True

    def _run_back(self, now: int) -> None:
        """One event and one callback in turn, while there is time.

        Events are fetched one by one, so that those that must wait stay with the kernel, and none is for a descriptor
        that has been closed meanwhile.
        """
        until = now + _BACK_NS
        callbacks, handlers = self._soon_back, self.handlers
        for _ in range(len(callbacks) + _MAX_EVENTS):
            batch = self._back.poll(0.0, 1) if self._back_waits else []
            for fd, events in batch:
                handler = handlers.get(fd, _ignore)
                try:
                    handler(events)
                except Exception as error:  # see run
                    self._on_crash(handler, error)
            self._back_waits = bool(batch)
            if callbacks:
                self.guarded(callbacks.popleft())
            elif not batch:
                break
            if monotonic_ns() >= until:
                break
        # The first epoll reports the second for as long as there is something in it.
        self._back_waits = False

    def _on_wake(self, _events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_reader.recv(4096)
        while self._calls:
            self.guarded(self._calls.popleft())

    def _close_now(self) -> None:
        closing, self._closing = self._closing, []
        for opened in closing:
            self.handlers.pop(opened.fileno(), None)
            self._at_back.discard(opened.fileno())
            opened.close()


def raise_descriptor_limit() -> int:
    """Every stream holds two descriptors: allow as many as the system lets us. Gives how many that are."""
    import resource  # needed once

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else _UNLIMITED
