"""The way from vLLM's event loop to our thread: a bounded queue that never waits."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")

#: Steps taken up together. A thread that woke for each step would take the interpreter's lock from the event loop as
#: often, and a sidecar looks at steps only every so often anyway.
BATCH_S: Final = 0.02
#: About half a minute of the fastest engines' steps.
MOST_WAITING: Final = 4096


class Intake(Generic[T]):
    """Items put in come out in batches, in a thread that begins with the first one. What is too much is counted."""

    def __init__(self, work: Callable[[Sequence[T]], None], most: int = MOST_WAITING) -> None:
        """``work`` must not raise."""
        self.dropped = 0
        self._work = work
        self._most = most
        self._items: deque[T] = deque()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()

    def put(self, item: T) -> None:
        if self._pid != os.getpid():  # vLLM forked: of our thread there is nothing here
            self._wake, self._thread, self._pid = threading.Event(), None, os.getpid()
            self._items.clear()
        if len(self._items) >= self._most:
            self.dropped += 1
            return
        self._items.append(item)
        if not self._wake.is_set():
            self._wake.set()
        if self._thread is None or not self._thread.is_alive():
            self._begin()

    def _begin(self) -> None:
        thread = threading.Thread(target=self._run, name="prefillwatch", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads: nothing is kept, and the next item tries again
            self.dropped += len(self._items)
            self._items.clear()
        else:
            self._thread = thread

    def drain(self) -> None:
        """Work through what is there."""
        batch = [self._items.popleft() for _ in range(len(self._items))]
        if batch:
            self._work(batch)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            time.sleep(BATCH_S)
            self._wake.clear()  # before the queue is looked at: what comes later wakes us again
            self.drain()
