"""How many bytes of requests a relay holds, and who has to wait or to go when that is too many.

A request goes upstream when it is complete, so until then its body is in our memory, and without a bound over all of
them a few clients could have the kernel end the process and every stream with it. Pure: no sockets, clocks passed in.

There are two shares, so that long uploads never stand in the way of prompts.

- Every body begins in the share of the *small* ones and is counted there byte by byte. When that share is full, copies
  that are only kept in case a request has to be repeated go first; then the request that has been sending for longest
  is refused. An honest prompt is complete in an instant: an attacker would have to send the whole share anew in that
  time.
- One that outgrows `SMALL_BODY` needs room for all that it announced (or may have) in the share of the *large* ones. It
  waits for it in order of arrival, without being read, and not for ever. Room is claimed once and in full, so none
  holds some while waiting for more, and there is no deadlock. Having sent so much makes a place in that queue costly.
- While a request waits, one that holds room but is too slow to be done in the time for a request loses it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from prefillwatch.units import NS

#: A million characters of prompt; what is larger has images, sound or files in it.
SMALL_BODY: Final = 1024 * 1024
#: Part of the budget that is for small bodies.
_SMALL_SHARE: Final = 4
#: Some small bodies have room in any case.
_LEAST_SMALL_SHARE: Final = 4 * SMALL_BODY
#: Part of a small share beyond it that requests may take which come while the one before is being answered.
_EARLY_SHARE: Final = 4
#: A large upload waits for room as long as this. Balancers try elsewhere after a 503, and may be waiting for it.
_PATIENCE_NS: Final = 15 * NS
#: No request is called slow before.
_GRACE_NS: Final = 2 * NS


@dataclass(frozen=True, slots=True)
class BodyShares:
    """Bytes that one relay may hold, by share."""

    small: int
    large: int

    @classmethod
    def of(cls, budget: int, relays: int, largest: int) -> BodyShares:
        """The part of one of several relays; each has room for one body of the largest size at least."""
        share = budget // relays
        small = max(share // _SMALL_SHARE, _LEAST_SMALL_SHARE)
        return cls(small, max(share - small, largest))

    @property
    def early(self) -> int:
        """Bytes of further requests while others are answered; beyond, they are not read yet."""
        return self.small // _EARLY_SHARE

    @property
    def total(self) -> int:
        """Bytes of bodies."""
        return self.small + self.large


class Loss(enum.Enum):
    """Why a client loses its room."""

    FULL = enum.auto()  # there is none; later there will be
    SLOW = enum.auto()  # it is too slow to hold room that others wait for


class Holder(Protocol):
    """Whose bytes are held."""

    def room_found(self) -> None:
        """There is room now for all of the body: go on reading. It may be found before the request waited."""

    def room_lost(self, loss: Loss) -> None:
        """Refuse the request; its claim is gone already."""


class Spare(Protocol):
    """A copy of what was sent already, in case it has to be sent again."""

    def drop(self) -> None:
        """Let go of it; its claim is gone already."""


class State(enum.Enum):
    """Where a claim is."""

    SMALL = enum.auto()  # being received, counted as far as it has come
    WAITING = enum.auto()  # for room among the large ones; not read meanwhile
    LARGE = enum.auto()  # being received, counted whole
    COMPLETE = enum.auto()  # received, and on its way upstream
    GONE = enum.auto()


class Claim:
    """The bytes of one request: ``size`` so far, ``counted`` in the share that they are in. Changed by `Bodies`."""

    __slots__ = ("counted", "holder", "in_large", "since_ns", "size", "state", "want")

    def __init__(self, holder: Holder) -> None:
        self.holder: Holder | None = holder
        self.state = State.SMALL
        self.size = 0
        self.counted = 0
        self.in_large = False
        self.want = 0  # of room among the large ones
        self.since_ns = 0  # when it began to wait, or got that room


class Bodies:
    """All claims of a relay. ``small`` and ``large`` are the bytes counted in the two shares.

    ``early`` are bytes of requests that came while the one before was being answered; their clients keep count.
    """

    def __init__(self, shares: BodyShares, request_limit_s: float, clock: Callable[[], int]) -> None:
        """``clock`` gives monotonic nanoseconds."""
        self.shares = shares
        self.small = 0
        self.large = 0
        self.early = 0
        self._limit_ns = int(request_limit_s * NS)
        self._clock = clock
        # Each in order, the oldest first.
        self._unfinished: dict[Claim, None] = {}  # small ones and those that wait
        self._waiting: dict[Claim, None] = {}
        self._large: dict[Claim, None] = {}  # those that are being received
        self._small_spares: dict[Claim, Spare] = {}
        self._large_spares: dict[Claim, Spare] = {}

    @property
    def held(self) -> int:
        """Bytes, and those on their way into room that was given."""
        return self.small + self.large + self.early

    @property
    def waiting(self) -> int:
        """How many large bodies wait for room."""
        return len(self._waiting)

    # --- What happens to a request ---

    def claim(self, holder: Holder) -> Claim:
        """For a request that begins. `release` it when its bytes are let go."""
        claim = Claim(holder)
        self._unfinished[claim] = None
        return claim

    def grow(self, claim: Claim, size: int, whole: int) -> None:
        """So many bytes more are held; ``whole`` is how many there can be in the end.

        May lead to `Holder.room_lost`, of this claim or of others. If it is WAITING afterwards, nothing more is to be
        read before `Holder.room_found`.
        """
        claim.size += size
        if claim.in_large:
            return
        claim.counted += size
        self.small += size
        if claim.size > SMALL_BODY and claim.state is State.SMALL:
            claim.want = max(whole, claim.size)
            claim.state, claim.since_ns = State.WAITING, self._clock()
            self._waiting[claim] = None
            self._hand_out()
        if self.small > self.shares.small:
            self._make_room()

    def complete(self, claim: Claim) -> None:
        """All of the body is there."""
        if claim.state is State.GONE:
            return
        claim.holder, claim.state = None, State.COMPLETE
        self._unfinished.pop(claim, None)
        self._waiting.pop(claim, None)
        if claim.in_large:
            del self._large[claim]
            self.large -= claim.counted - claim.size
            claim.counted = claim.size
            self._hand_out()

    def keep_as_spare(self, claim: Claim, spare: Spare) -> None:
        """The bytes are needed no more, unless the request has to be sent again."""
        if claim.state is State.COMPLETE:
            (self._large_spares if claim.in_large else self._small_spares)[claim] = spare
            self._hand_out()

    def need_again(self, claim: Claim) -> None:
        """The request is being sent again."""
        self._small_spares.pop(claim, None)
        self._large_spares.pop(claim, None)

    def release(self, claim: Claim) -> None:
        """The bytes are let go; calling twice does no harm."""
        if claim.state is State.GONE:
            return
        self._unfinished.pop(claim, None)
        self._waiting.pop(claim, None)
        self._large.pop(claim, None)
        self.need_again(claim)
        claim.holder, claim.state = None, State.GONE
        if claim.in_large:
            self.large -= claim.counted
            self._hand_out()
        else:
            self.small -= claim.counted

    # --- Who waits and who goes ---

    def tick(self) -> None:
        """Once a second: end what has waited for too long, and what is too slow while others wait."""
        if not self._waiting:
            return
        now = self._clock()
        slow = [claim for claim in self._large if self._is_slow(claim, now)]
        late = [claim for claim in self._waiting if now - claim.since_ns > _PATIENCE_NS]
        for claim in slow:
            self._lose(claim, Loss.SLOW)
        for claim in late:
            if claim.state is State.WAITING:  # and did not get the room of those
                self._lose(claim, Loss.FULL)

    def _is_slow(self, claim: Claim, now: int) -> bool:
        """Whether it would not be done in the time for a request if it went on as it has since it got its room."""
        elapsed = now - claim.since_ns - _GRACE_NS
        return elapsed > 0 and (claim.size - SMALL_BODY) * self._limit_ns < claim.want * elapsed

    def _hand_out(self) -> None:
        """There may be room among the large ones. In order, so that the largest do not wait for ever."""
        while self._waiting:
            claim = next(iter(self._waiting))
            if self.large + claim.want <= self.shares.large:
                del self._waiting[claim], self._unfinished[claim]
                self.small -= claim.counted
                self.large += claim.want
                claim.counted, claim.in_large = claim.want, True
                claim.state, claim.since_ns = State.LARGE, self._clock()
                self._large[claim] = None
                if claim.holder is not None:
                    claim.holder.room_found()
            elif self._large_spares:
                self._drop_spare(self._large_spares)  # which comes back here
            else:
                return

    def _make_room(self) -> None:
        """The small share is full."""
        while self.small > self.shares.small:
            if self._small_spares:
                self._drop_spare(self._small_spares)
            elif self._unfinished:
                self._lose(next(iter(self._unfinished)), Loss.FULL)
            else:
                return

    def _drop_spare(self, spares: dict[Claim, Spare]) -> None:
        claim, spare = next(iter(spares.items()))
        self.release(claim)
        spare.drop()

    def _lose(self, claim: Claim, loss: Loss) -> None:
        holder = claim.holder
        self.release(claim)
        if holder is not None:
            holder.room_lost(loss)
