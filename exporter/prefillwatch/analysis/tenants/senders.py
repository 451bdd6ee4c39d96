"""Books by who sent a request: by tenant, of whom the largest have places, and by priority, of which there are five.

Only where the settings ask for it is there one of these; else nobody calls anything here. Who did a thing to whom is
decided by whose request it was, not by the place it has: of two tenants that both are ``other`` one still suffers from
another and not from itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from prefillwatch.analysis.arrays import IntArray, by_value
from prefillwatch.analysis.delays import Stall
from prefillwatch.analysis.requests import LOST, Request
from prefillwatch.analysis.tenants.books import SenderBook, Totals
from prefillwatch.analysis.tenants.matrix import BlameMatrix
from prefillwatch.analysis.tenants.places import Places
from prefillwatch.analysis.tokens import Gaps
from prefillwatch.contract.buckets import PRIORITY_CLASSES
from prefillwatch.units import NS
from prefillwatch.wire.routes import READING
from prefillwatch.wire.sender import MOST_URGENT, OTHER, UNNAMED

#: Totals of tenants without a place are remembered, for each place so many: who comes back goes on where it was.
_REMEMBERED_PER_PLACE: Final = 4


class _Books:
    """One book for each number, and which stream goes to which."""

    def __init__(self, windows_s: tuple[int, ...], number_of: Callable[[Request], int]) -> None:
        self.books: dict[int, SenderBook] = {}
        self.matrix = BlameMatrix()
        self.number_of = number_of
        self._windows_s = windows_s
        self._number_of_slot: IntArray = np.zeros(64, np.int64)

    def open(self, number: int, totals: Totals) -> None:
        self.books[number] = SenderBook(self._windows_s, totals)

    def of(self, request: Request) -> SenderBook:
        number = self.number_of(request)
        if number not in self.books:
            self.open(number, Totals())
        return self.books[number]

    def stream(self, slot: int, request: Request) -> None:
        """The gaps of this slot are those of the request from here on."""
        if slot >= len(self._number_of_slot):
            room = max(slot + 1, 2 * len(self._number_of_slot)) - len(self._number_of_slot)
            self._number_of_slot = np.append(self._number_of_slot, np.zeros(room, np.int64))
        self.of(request)
        self._number_of_slot[slot] = self.number_of(request)

    def gaps(self, gaps: Gaps) -> None:
        seconds, now_ns = (gaps.end_ns - gaps.start_ns) / NS, int(gaps.end_ns.max())
        for number, own in by_value(self._number_of_slot[gaps.slot]):
            book = self.books.get(number)
            if book is not None:  # else its place is nobody's any more
                book.gaps.add_many(seconds[own], now_ns)

    def ended(self, request: Request) -> None:
        totals = self.of(request).totals
        totals.requests += request.endpoint not in READING
        totals.within_slo += request.within_slo
        totals.prompt_tokens += request.prompt_tokens
        totals.generated_tokens += request.tokens

    def stall(self, stall: Stall, key: Callable[[Request], object], name: Callable[[Request], str]) -> None:
        seconds, victim = stall.excess_ns / NS, stall.request
        suffered = self.of(victim).totals
        if not stall.shares:
            suffered.nobody += seconds
            return
        for share in stall.shares:
            part = share.part * seconds
            if key(share.request) == key(victim):
                suffered.itself += part
            else:
                self.of(share.request).totals.caused += part
                suffered.suffered += part
            self.matrix.add(name(share.request), name(victim), part, stall.ended_ns)

    def advance(self, now_ns: int) -> None:
        for book in self.books.values():
            book.advance(now_ns)


class Senders:
    """What the ledger tells, into the books of tenants and of priorities."""

    def __init__(self, windows_s: tuple[int, ...], max_tenants: int, *, priorities: bool) -> None:
        """``max_tenants`` 0: tenants are not told apart."""
        self.places = Places(max_tenants)
        self.tenants = _Books(windows_s, lambda request: self.places.numbers.get(_tenant(request), 0))
        self.priorities = _Books(windows_s, lambda request: request.priority - MOST_URGENT)
        self._by = [self.tenants] * (max_tenants > 0) + [self.priorities] * priorities
        self._tells_tenants = max_tenants > 0
        self._remembered: OrderedDict[str, Totals] = OrderedDict()
        self._now_ns = 0
        if priorities:
            for number in range(len(PRIORITY_CLASSES)):
                self.priorities.open(number, Totals())
        if max_tenants:
            self.tenants.open(0, Totals())

    # --- What the ledger tells ---

    def received(self, request: Request) -> None:
        if self._tells_tenants and request.generating:
            self._seen(request, 0, max(request.received_ns, self._now_ns))

    def _seen(self, request: Request, tokens: int, now_ns: int) -> None:
        tenant = _tenant(request)
        number = self.places.seen(tenant, tokens, now_ns)
        if number is not None:
            self._move_in(tenant, number)

    def stream(self, slot: int, request: Request) -> None:
        """A sequence of tokens began."""
        for by in self._by:
            by.stream(slot, request)

    def first_token(self, request: Request, time_ns: int) -> None:
        if request.received_ns:
            for by in self._by:
                by.of(request).ttft.add((time_ns - request.received_ns) / NS, time_ns)

    def gaps(self, gaps: Gaps) -> None:
        if len(gaps):
            for by in self._by:
                by.gaps(gaps)

    def stall(self, stall: Stall) -> None:
        """Its cause is final."""
        if self._tells_tenants:
            self.tenants.stall(stall, _tenant, self.name)
        if self.priorities in self._by:
            self.priorities.stall(stall, _priority, lambda request: PRIORITY_CLASSES[_priority(request) - MOST_URGENT])

    def ended(self, request: Request, time_ns: int, outcome: str) -> None:
        """A request is over; one that upstream never got, or whose end is not known, counts as none."""
        if not request.generating or not request.sent_ns or outcome in (LOST, "rejected"):
            return
        if self._tells_tenants:
            self._seen(request, request.prompt_tokens + request.tokens, time_ns)
        for by in self._by:
            by.ended(request)

    def advance(self, now_ns: int, requests: Iterable[Request]) -> None:
        """``requests`` are those in flight."""
        self._now_ns = now_ns
        changes = self.places.give_anew(now_ns) if self._tells_tenants else []
        for loser, tenant, number in changes:
            if loser:
                self._move_out(loser, number)
            if tenant:
                self._move_in(tenant, number)
        if changes:
            for request in requests:
                for slot in request.slots.values():
                    self.tenants.stream(slot, request)
        for by in self._by:
            by.advance(now_ns)

    # --- Places ---

    def _move_in(self, tenant: str, number: int) -> None:
        self.tenants.open(number, self._remembered.pop(tenant, Totals()))

    def _move_out(self, tenant: str, number: int) -> None:
        self._remembered[tenant] = self.tenants.books.pop(number).totals
        while len(self._remembered) > _REMEMBERED_PER_PLACE * self.places.most:
            self._remembered.popitem(last=False)

    def name(self, request: Request) -> str:
        """The tenant's, if it has a place."""
        tenant = _tenant(request)
        return tenant if tenant in self.places.numbers else OTHER


def _tenant(request: Request) -> str:
    return request.tenant or UNNAMED


def _priority(request: Request) -> int:
    return request.priority
