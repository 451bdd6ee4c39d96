"""Stall seconds of the last hour by who caused them and who suffered them."""

from __future__ import annotations

from collections import deque
from typing import Final

from prefillwatch.analysis.tenants.hours import first_slot, slot_of
from prefillwatch.wire.sender import OTHER

#: Pairs in five minutes. Tenants with a place are few, but places can change hands every minute.
_MOST_PAIRS: Final = 4096


class BlameMatrix:
    def __init__(self) -> None:
        self._slots: deque[tuple[int, dict[tuple[str, str], float]]] = deque()

    def add(self, causer: str, sufferer: str, seconds: float, now_ns: int) -> None:
        slot = slot_of(now_ns)
        if not self._slots or self._slots[-1][0] < slot:
            self._slots.append((slot, {}))
            self._expire(now_ns)
        pairs = self._slots[-1][1]
        pair = (causer, sufferer)
        if pair not in pairs and len(pairs) >= _MOST_PAIRS:
            pair = (OTHER, OTHER)
        pairs[pair] = pairs.get(pair, 0.0) + seconds

    def _expire(self, now_ns: int) -> None:
        while self._slots and self._slots[0][0] < first_slot(now_ns):
            self._slots.popleft()

    def pairs(self, now_ns: int) -> dict[tuple[str, str], float]:
        """Causer and sufferer, the most seconds first."""
        self._expire(now_ns)
        sums: dict[tuple[str, str], float] = {}
        for _, pairs in self._slots:
            for pair, seconds in pairs.items():
                sums[pair] = sums.get(pair, 0.0) + seconds
        return dict(sorted(sums.items(), key=lambda item: -item[1]))
