"""A thread that sends what it is given, so that whoever gives it never waits: for the network, or for a library to
load.

What does not get through is bounded in memory and in tries. The log has a line when sending begins to fail, and one
when it works again.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")
#: Sends, or raises SendError.
Send = Callable[[Sequence[Item]], None]

#: So often is one thing tried: for some minutes, which a receiver may need to start again. One that never takes it must
#: not hold up the others for ever.
MOST_TRIES: Final = 20

log = logging.getLogger(__name__)


class SendError(Exception):
    """It did not get through; the message says why."""


class Channel(Generic[Item]):
    """``offer`` from any thread."""

    def __init__(self, what: str, url: str, connect: Callable[[], Send[Item]], *, most: int, pause_s: float) -> None:
        """``connect`` is called in the thread. At most so many items wait, the oldest are dropped; after a failure
        there is a pause."""
        self._what = what
        self._url = url
        self._connect = connect
        self._send: Send[Item] | None = None
        self._pause_s = pause_s
        self._news = threading.Condition()
        self._waiting: deque[tuple[Item, int]] = deque()  # with how often it was tried in vain
        self._most = most
        self._sending = 0  # items taken to be sent
        self._closing = False
        self._works: bool | None = None  # None: not tried yet
        #: Of tries.
        self.succeeded = self.failed = 0
        #: Items that were given up.
        self.dropped = 0

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"otlp {self._what}", daemon=True).start()

    def offer(self, item: Item) -> None:
        with self._news:
            self._waiting.append((item, 0))
            self._bound()
            self._news.notify_all()

    def close(self, patience_s: float) -> None:
        """Send what waits, but only for so long."""
        with self._news:
            self._closing = True
            self._news.notify_all()
            self._news.wait_for(lambda: not self._waiting and not self._sending, patience_s)

    def turn(self) -> bool:
        """Send all that waits; whether it got through."""
        with self._news:
            items = list(self._waiting)
            self._waiting.clear()
            self._sending = len(items)
        try:
            if self._send is None:
                self._send = self._connect()
            self._send([item for item, _ in items])
        except SendError as error:
            self._failed(items, str(error))
            return False
        with self._news:
            self._sending = 0
            self.succeeded += 1
            self._news.notify_all()
        if not self._works:
            log.info("%s get to %s%s", self._what, self._url, "" if self._works is None else " again")
            self._works = True
        return True

    def _failed(self, items: list[tuple[Item, int]], why: str) -> None:
        again = [(item, tries + 1) for item, tries in items if tries + 1 < MOST_TRIES]
        with self._news:
            self._sending = 0
            self.failed += 1
            self.dropped += len(items) - len(again)
            self._waiting.extendleft(reversed(again))
            self._bound()
            self._news.notify_all()
        if self._works is not False:
            log.warning("%s do not get to %s: %s", self._what, self._url, why)
            self._works = False

    def _bound(self) -> None:
        while len(self._waiting) > self._most:
            self._waiting.popleft()
            self.dropped += 1

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    return
            if not self.turn():
                with self._news:
                    self._news.wait_for(lambda: self._closing, self._pause_s)
                    if self._closing:
                        return
