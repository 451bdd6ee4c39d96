"""A request on its way to upstream; once more on another connection if need be."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from prefillwatch.relay import injection
from prefillwatch.relay.bodies import Bodies, Claim
from prefillwatch.relay.forwarding import request_head
from prefillwatch.relay.hops import Hop
from prefillwatch.relay.http_head import Request
from prefillwatch.relay.reactor import monotonic_ns
from prefillwatch.relay.request_body import RequestBody
from prefillwatch.units import NS

#: Handed over in one turn of the loop, so that a large upload holds up no other work.
_MAX_PER_TURN: Final = 1024 * 1024
#: Head and body up to this leave together, as one segment.
_MAX_JOINED: Final = 16 * 1024
#: A kept connection that was dead already shows it within this time. Later, the request may have been worked on.
REPEAT_WITHIN_S: Final = 1.0
_REPEAT_WITHIN_NS: Final = int(REPEAT_WITHIN_S * NS)


class Kept:
    """A request's body and the room that it takes, until it is let go."""

    __slots__ = ("_bodies", "_claim", "body")

    def __init__(self, body: RequestBody, claim: Claim | None, bodies: Bodies) -> None:
        self.body: RequestBody | None = body
        self._claim = claim
        self._bodies = bodies

    def is_spare(self) -> None:
        """It is kept in case it has to be sent again; its room goes to requests that need it more."""
        if self._claim is not None:
            self._bodies.keep_as_spare(self._claim, self)

    def is_needed(self) -> None:
        if self._claim is not None:
            self._bodies.need_again(self._claim)

    def drop(self) -> None:
        """Let go of it; calling twice does no harm."""
        self.body = None
        claim, self._claim = self._claim, None
        if claim is not None:
            self._bodies.release(claim)


class Sending:
    """Keeps the body as long as it may have to be sent again.

    ``sent_ns`` is when the whole request had been handed over, 0 before. ``injected``: usage was asked for.
    """

    __slots__ = ("_authority", "_hop", "_keep_host", "_kept", "_out", "_request", "injected", "sent_ns")

    def __init__(self, request: Request, kept: Kept, authority: bytes, *, keep_host: bool, hop: Hop) -> None:
        self._request = request
        self._kept = kept
        self._hop = hop
        self._authority = authority
        self._keep_host = keep_host
        self._out: deque[memoryview] = deque()
        self.injected = False
        self.sent_ns = 0

    def start(self, *, inject: bool) -> None:
        """Put the request together, from its beginning."""
        request, body = self._request, self._kept.body
        assert body is not None
        self.sent_ns = 0
        self._kept.is_needed()
        changed = injection.rewritten(request, body) if inject else None
        self.injected = changed is not None
        length = -1 if changed is None else len(changed)
        head = request_head(request, self._authority, keep_host=self._keep_host, length=length, hop=self._hop)
        pieces = list(body.framed()) if changed is None else [changed]
        joined = sum(map(len, pieces)) <= _MAX_JOINED
        self._out = deque(memoryview(piece) for piece in ([head + b"".join(pieces)] if joined else [head, *pieces]))

    def pump(self, send: Callable[[Any], int]) -> bool:
        """Hand over what upstream takes; True: come again in the next turn. Raises OSError."""
        out, room = self._out, _MAX_PER_TURN
        while out and room > 0:
            try:
                sent = send(out[0])
            except BlockingIOError:
                return False
            room -= sent
            if sent == len(out[0]):
                out.popleft()
            else:
                out[0] = out[0][sent:]
        if not out:
            self.sent_ns = monotonic_ns()
            self._kept.is_spare()
        return bool(out)

    @property
    def waits(self) -> bool:
        """Whether something is left to hand over."""
        return bool(self._out)

    def stop(self) -> None:
        """Upstream takes no more."""
        self._out.clear()

    def forget(self) -> None:
        """The request will not be sent again because of a dead connection."""
        if not self.injected and not self._out:
            self._kept.drop()

    def drop(self) -> None:
        """The request will not be sent again at all, nor what is left of it."""
        self._out.clear()
        self._kept.drop()

    @property
    def is_whole(self) -> bool:
        """Whether the request could be sent again, from its beginning."""
        return self._kept.body is not None

    def may_repeat(self) -> bool:
        """Whether the request can be sent again, as far as time and memory go."""
        return self.is_whole and (not self.sent_ns or monotonic_ns() - self.sent_ns < _REPEAT_WITHIN_NS)
