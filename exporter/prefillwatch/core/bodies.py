"""Request bodies on their way into the books: held while there is room, read while there is time.

Anybody can send a body, and reading one costs many times what its bytes cost on the wire. So all bodies together may
take so much memory and so much of a core, and no more; of those that get neither only the size counts, and a look at
their ends. A body that upstream has not answered yet may be anybody's: only a small one is read by then, and from an
allowance of its own, so that strangers can take nothing away from clients whom upstream knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from prefillwatch.units import NS
from prefillwatch.wire.request import GLANCED_BYTES, MAX_INFLATED_BYTES, RequestFacts, glance, read_request
from prefillwatch.wire.routes import endpoint_of
from prefillwatch.wire.tap import RequestHead

#: All bodies that are held, together.
MOST_HELD_BYTES: Final = 64 * 2**20
#: A body up to here is read before upstream has answered: a prompt of 64,000 tokens, and about a millisecond for an
#: honest one.
SMALL_BYTES: Final = 256 * 1024
#: Shares of a core for bodies of requests that upstream has not answered yet, and for those that it has accepted.
UNANSWERED_SHARE: Final = 0.1
ACCEPTED_SHARE: Final = 0.2
#: Why of a body no more than its size counts.
UNREAD_REASONS: Final = ("memory", "time", "content", "lost")


class Allowance:
    """A share of a core, saved up for at most a second."""

    __slots__ = ("_filled_ns", "_left_ns", "_share")

    def __init__(self, share: float) -> None:
        self._share = share
        self._left_ns = share * NS
        self._filled_ns = 0

    def is_left(self, now_ns: int) -> bool:
        passed_ns = max(0, now_ns - self._filled_ns)
        self._filled_ns += passed_ns
        self._left_ns = min(self._left_ns + passed_ns * self._share, self._share * NS)
        return self._left_ns > 0

    def spend(self, cpu_ns: int) -> None:
        """What one reading took; that may be more than was left, and is paid back before the next."""
        self._left_ns -= cpu_ns


class RequestBodies:
    """All of them."""

    def __init__(self, cpu_clock: Callable[[], int], most_held: int = MOST_HELD_BYTES) -> None:
        """``cpu_clock``: nanoseconds that this thread has run."""
        self.most_held = most_held
        self.held = 0
        #: Bodies of which no more than the size counts, by `UNREAD_REASONS`.
        self.unread: Counter[str] = Counter()
        #: Makes a name of what a body says of its user (`wire.sender`); None: nobody wants to know.
        self.name_user: Callable[[str], str] | None = None
        self._cpu_clock = cpu_clock
        self._unanswered = Allowance(UNANSWERED_SHARE)
        self._accepted = Allowance(ACCEPTED_SHARE)

    @property
    def room(self) -> int:
        return self.most_held - self.held

    def read(
        self, head: RequestHead, body: bytes, now_ns: int, *, complete: bool, accepted: bool
    ) -> RequestFacts | None:
        """What a body says; None if there is no time for it. ``accepted``: upstream has answered with success."""
        allowance = self._accepted if accepted else self._unanswered
        if not allowance.is_left(now_ns):
            return None
        begin = self._cpu_clock()
        most_inflated = MAX_INFLATED_BYTES if accepted else SMALL_BYTES
        facts = read_request(head.path, head.content_encoding, body, complete, most_inflated)
        allowance.spend(self._cpu_clock() - begin)
        if facts is not None and facts.user:
            name = self.name_user(facts.user) if self.name_user is not None else ""
            facts = msgspec.structs.replace(facts, user=name)
        return facts


class HeldBody:
    """The body of one request: `add` its pieces, `read` at their end and again when upstream has accepted it."""

    __slots__ = ("_bodies", "_data", "_missing", "_whole", "ended", "unread")

    def __init__(self, bodies: RequestBodies) -> None:
        self._bodies = bodies
        self._data = bytearray()
        self._whole = True  # False: only its ends are held
        self._missing = "memory"  # why, by `UNREAD_REASONS`
        self.ended = False
        self.unread = ""  # why no more than its size counts, by `UNREAD_REASONS`; empty: it does, or may yet

    def add(self, piece: bytes) -> None:
        """It is held while it is not larger than the room that is left: so the large never take all of it."""
        if self.ended:
            return
        if self._whole:
            if len(self._data) + len(piece) <= self._bodies.room:
                self._data += piece
                self._bodies.held += len(piece)
                return
            self._whole = False
        begin, end = self._data[:GLANCED_BYTES], self._data[GLANCED_BYTES:] + piece
        self._hold(begin + end[-GLANCED_BYTES:])

    def cut(self) -> None:
        """Bytes of it were lost here."""
        if not self.ended:
            self._whole, self._missing = False, "lost"

    def read(self, head: RequestHead, size: int, now_ns: int) -> RequestFacts:
        """At the end of the request. What it says, or, `complete` false, what there is of that for now."""
        self.ended = True
        if not self._whole:
            self.leave_unread(self._missing)
        small = self._whole and len(self._data) <= SMALL_BYTES
        complete = len(self._data) >= size
        facts = self._bodies.read(head, bytes(self._data), now_ns, complete=complete, accepted=False) if small else None
        if facts is None:
            return self._with_ends(RequestFacts(endpoint=endpoint_of(head.path), complete=False))
        known = self._with_ends(facts)
        if not self._may_say_more(facts, head):
            self._finish(facts, complete=complete)
        return known

    def read_accepted(self, head: RequestHead, size: int, now_ns: int) -> RequestFacts | None:
        """Upstream has accepted the request: what its body says, if that is more than was known before."""
        if not self.ended or not self._data or not self._whole:
            self.let_go()
            return None
        complete = len(self._data) >= size
        facts = self._bodies.read(head, bytes(self._data), now_ns, complete=complete, accepted=True)
        if facts is None:
            self.leave_unread("time")
            self.let_go()
            return None
        known = self._with_ends(facts)
        self._finish(facts, complete=complete)
        return known

    def leave_unread(self, reason: str) -> None:
        """No more than its size counts from here on."""
        if self.unread != reason:
            self.unread = reason
            self._bodies.unread[reason] += 1

    def let_go(self) -> None:
        self._hold(bytearray())

    def _hold(self, data: bytearray) -> None:
        more = len(data) - len(self._data)
        if more > self._bodies.room:
            data, more = bytearray(), -len(self._data)
        self._data = data
        self._bodies.held += more

    def _may_say_more(self, facts: RequestFacts, head: RequestHead) -> bool:
        """Of a compressed body only the beginning comes out before upstream has accepted it."""
        return bool(head.content_encoding) and not facts.complete

    def _finish(self, facts: RequestFacts, *, complete: bool) -> None:
        if complete and not facts.complete:
            self.leave_unread("content")
        self.let_go()

    def _with_ends(self, facts: RequestFacts) -> RequestFacts:
        """With what its ends say in place of what could not be read."""
        if facts.complete or (facts.model and facts.stream is not None):
            return facts
        model, stream = glance(self._data)
        return msgspec.structs.replace(
            facts, model=facts.model or model, stream=stream if facts.stream is None else facts.stream
        )
