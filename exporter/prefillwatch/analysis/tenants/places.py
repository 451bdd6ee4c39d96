"""Which tenants have series of their own: at most so many, by tokens in the last hour. Pure, bounded.

A place is taken by the first request of a tenant while one is free. Once a minute they are given anew: who had nothing
for an hour gives its place up, free ones go to the largest outsiders, and an outsider with more than twice the tokens
of the smallest holder changes places with it. Twice, since two of about one size would take turns, and each turn ends a
series and begins another.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from prefillwatch.analysis.tenants.hours import first_slot, slot_of
from prefillwatch.units import NS

#: Tenants whose tokens are counted, for each place. Beyond it the smaller half of the outsiders is forgotten, so a
#: flood of names costs no more than this.
WATCHED_PER_PLACE: Final = 50
#: An outsider takes the place of a holder that it has so many times the tokens of.
_TAKES_OVER: Final = 2.0
_EVERY_NS: Final = 60 * NS


class _Hour:
    """Tokens of one tenant in the last hour."""

    __slots__ = ("slots", "tokens")

    def __init__(self) -> None:
        self.slots: deque[tuple[int, int]] = deque()  # number of the slot, tokens
        self.tokens = 0

    def add(self, slot: int, tokens: int) -> None:
        if self.slots and self.slots[-1][0] >= slot:
            self.slots[-1] = (self.slots[-1][0], self.slots[-1][1] + tokens)
        else:
            self.slots.append((slot, tokens))
        self.tokens += tokens

    def expire(self, first: int) -> None:
        while self.slots and self.slots[0][0] < first:
            self.tokens -= self.slots.popleft()[1]


class Places:
    """Numbers from 1 up for tenants with a place; 0 is everybody else."""

    def __init__(self, most: int) -> None:
        self.most = most
        #: Tenants with a place, and their numbers.
        self.numbers: dict[str, int] = {}
        self._free: list[int] = []  # numbers that were somebody's
        self._hours: dict[str, _Hour] = {}
        self._given_ns = 0

    def __len__(self) -> int:
        """Tenants that are watched."""
        return len(self._hours)

    def tokens(self, tenant: str) -> int:
        """In the last hour, as far as they were counted."""
        hour = self._hours.get(tenant)
        return hour.tokens if hour is not None else 0

    def seen(self, tenant: str, tokens: int, now_ns: int) -> int | None:
        """It sent a request, or so many tokens of one are known. The number of the place that it took just now, if it
        did."""
        hour = self._hours.get(tenant)
        if hour is None:
            if len(self._hours) >= WATCHED_PER_PLACE * self.most:
                self._forget_small()
            hour = self._hours[tenant] = _Hour()
        hour.add(slot_of(now_ns), tokens)
        if tenant in self.numbers or len(self.numbers) >= self.most:
            return None
        return self._give(tenant)

    def _give(self, tenant: str) -> int:
        number = self.numbers[tenant] = self._free.pop() if self._free else len(self.numbers) + 1
        return number

    def _forget_small(self) -> None:
        outsiders = sorted((each for each in self._hours if each not in self.numbers), key=self.tokens)
        for tenant in outsiders[: (len(outsiders) + 1) // 2]:
            del self._hours[tenant]

    def give_anew(self, now_ns: int) -> list[tuple[str, str, int]]:
        """Who lost a place to whom, and its number; an empty name is nobody. Call as often as you like."""
        if now_ns - self._given_ns < _EVERY_NS:
            return []
        self._given_ns = now_ns
        first = first_slot(now_ns)
        for tenant, hour in list(self._hours.items()):
            hour.expire(first)
            if not hour.slots and tenant not in self.numbers:
                del self._hours[tenant]
        changes = [(tenant, "", number) for tenant, number in self.numbers.items() if not self._hours[tenant].slots]
        for tenant, _, number in changes:
            del self.numbers[tenant], self._hours[tenant]
            self._free.append(number)
        outsiders = sorted((each for each in self._hours if each not in self.numbers), key=self.tokens)
        while len(self.numbers) < self.most and outsiders and self.tokens(outsiders[-1]):
            tenant = outsiders.pop()
            changes.append(("", tenant, self._give(tenant)))
        holders = sorted(self.numbers, key=self.tokens, reverse=True)
        while outsiders and holders and self.tokens(outsiders[-1]) > _TAKES_OVER * self.tokens(holders[-1]):
            loser, tenant = holders.pop(), outsiders.pop()
            number = self.numbers[tenant] = self.numbers.pop(loser)
            changes.append((loser, tenant, number))
        return changes
