"""The streams that viewers follow: a lane each, with the moments of its tokens since the last frame.

Exists only while somebody watches. The core shows the reads that it works through, a batch at a time; nothing here is
on the way of a token.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from prefillwatch.units import MS

#: More streams than this have no lane until one is free; those that stall get one all the same.
MOST_LANES: Final = 500
#: So many token events in one read had been held back somewhere, or the server makes several at a time.
BURST: Final = 4
_MOST_BURSTS: Final = 200
#: Ticks kept for the next frame: a second and more of the most that is to be expected. Only a recording that is played
#: very fast has more, and nobody could see them.
MOST_TICKS: Final = 50_000


@dataclass(slots=True, eq=False)
class Lane:
    """``ticks`` are the reads with tokens since the last frame, in milliseconds since viewers' time began."""

    number: int
    rid: int
    slot: int
    ticks: list[int] = field(default_factory=list)
    #: Whether it stalls now or did a moment ago.
    stalled: bool = False


class Lanes:
    """``owner`` names the request whose tokens go to a slot now; ``base_ns`` is when viewers' time begins."""

    def __init__(self, owner: Callable[[int], int | None], base_ns: int, most: int = MOST_LANES) -> None:
        self._owner = owner
        self._base_ns = base_ns
        self._most = most
        self._numbers = itertools.count(1)
        self.all: dict[int, Lane] = {}  # by slot
        self.new: list[Lane] = []
        self.gone: list[int] = []
        self._kept = 0
        self._bursts: list[list[int]] = []
        self._parting: list[Lane] = []  # gone since the last frame

    def ms(self, time_ns: int) -> int:
        return (time_ns - self._base_ns) // MS

    def take(self, slots: list[int], times_ns: list[int], events: list[int]) -> None:
        """A batch of reads, and the token events of each. Every slot belongs to one sequence for the whole of it."""
        slot, ms = np.array(slots, np.int64), (np.array(times_ns, np.int64) - self._base_ns) // MS
        if max(events) >= BURST:
            self._note_bursts(slots, ms.tolist(), events)
        self._keep(len(slots))
        order = np.lexsort((ms, slot))
        slot, ms = slot[order], ms[order]
        begins = np.flatnonzero(np.append(True, slot[1:] != slot[:-1])).tolist()
        owners, times = slot[begins].tolist(), ms.tolist()
        for own, begin, end in zip(owners, begins, [*begins[1:], len(times)], strict=True):
            lane = self._lane(own)
            if lane is not None:
                lane.ticks += times[begin:end]

    def _keep(self, more: int) -> None:
        if self._kept + more > MOST_TICKS:
            self.drain_ticks()
        self._kept += more

    def _note_bursts(self, slots: list[int], times: list[int], events: list[int]) -> None:
        for slot, at, count in zip(slots, times, events, strict=True):
            lane = self._lane(slot) if count >= BURST else None
            if lane is not None and len(self._bursts) < _MOST_BURSTS:
                self._bursts.append([lane.number, at, count])

    def _lane(self, slot: int) -> Lane | None:
        """The lane of whoever has this slot now: slots go to the next sequence when one is over."""
        known, rid = self.all.get(slot), self._owner(slot)
        if known is not None:
            if known.rid == rid:
                return known
            self._close(known)
        if rid is None or len(self.all) >= self._most:
            return None
        lane = self.all[slot] = Lane(next(self._numbers), rid, slot)
        self.new.append(lane)
        return lane

    def _close(self, lane: Lane) -> None:
        del self.all[lane.slot]
        self.gone.append(lane.number)
        self._parting.append(lane)

    def follow(self, owners: Mapping[int, int]) -> None:
        """Close the lanes of sequences that are over, and open some for those that have none as long as there is room.
        ``owners`` has by slot the number of the request that has it."""
        for lane in [each for each in self.all.values() if owners.get(each.slot) != each.rid]:
            self._close(lane)
        if len(self.all) < self._most:
            for slot in owners.keys() - self.all.keys():
                self._lane(slot)

    def stalled(self, slots: Iterable[int]) -> None:
        """These slots stall, or did a moment ago. Those of them without a lane get that of somebody who is well."""
        for lane in self.all.values():
            lane.stalled = False
        missing = []
        for slot in slots:
            found = self._lane(slot)
            if found is None:
                missing.append(slot)
            else:
                found.stalled = True
        well = [lane for lane in self.all.values() if not lane.stalled]
        for slot, lane in zip(missing, well, strict=False):
            self._close(lane)
            taken_over = self._lane(slot)
            if taken_over is not None:
                taken_over.stalled = True

    def drain_ticks(self) -> list[list[int]]:
        """For each lane with news its number, the first moment, and the differences of the following ones."""
        news = []
        for lane in (*self._parting, *self.all.values()):
            ticks = lane.ticks
            if ticks:
                news.append([lane.number, ticks[0], *(b - a for a, b in itertools.pairwise(ticks))])
                lane.ticks = []
        self._parting.clear()
        self._kept = 0
        return news

    def drain_bursts(self) -> list[list[int]]:
        bursts, self._bursts = self._bursts, []
        return bursts

    def drain_new(self) -> list[Lane]:
        new, self.new = self.new, []
        return new

    def drain_gone(self) -> list[int]:
        gone, self.gone = self.gone, []
        return gone
