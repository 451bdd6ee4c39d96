"""Which gaps are stalls: while they last, and when they end.

A gap is a stall when it is at least so long and so many times the baseline per token that it brought, or so long that
it always is one (`StallRule`). The excess is what goes beyond the baseline of the tokens it brought.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from prefillwatch.analysis.arrays import BoolArray, FloatArray, IntArray
from prefillwatch.analysis.delays import ReadAfter, Stall
from prefillwatch.analysis.requests import Request
from prefillwatch.analysis.settings import StallRule
from prefillwatch.analysis.tokens import GapBook, Gaps
from prefillwatch.analysis.tuning import DEFAULT, GapRules, VerdictRules
from prefillwatch.analysis.verdicts.bursts import Bursts
from prefillwatch.units import NS

#: What a gap is held against where nothing is known of its stream and model.
CLEAR_STEP: Final = "a clear step"
#: A gap shorter than this part of the least that would be a stall is none, whatever the rounding.
_SURELY: Final = 1 - 1e-9


class Return(NamedTuple):
    """More about a read that may have ended a stall."""

    #: That it brought, in units of the stream's average token event.
    tokens: float
    chars: int = 0
    #: Of the stream, in all reads before it; 0 while they are too few for an average.
    chars_before: int = 0
    #: Token events in the same reads.
    events_before: int = 0
    #: Token events of the read before it, if that was the first of the stream.
    first_burst: int = 0

    def held_back(self, events: int) -> float:
        """Tokens that its text must hold beyond one per event; 0 while the average text of one is not known."""
        if not self.chars_before:
            return 0.0
        return max(0.0, self.chars / (self.chars_before / self.events_before) - events)


class Silence(NamedTuple):
    """An open gap of a stream that still owes tokens and that its own reader does not hold up."""

    slot: int
    request: Request
    seconds: float
    #: It is a stall already.
    frozen: bool


class StallWatch:
    """Finds stalls in the gaps of all streams. `open` are those that last."""

    def __init__(
        self, rule: StallRule, book: GapBook, rules: VerdictRules = DEFAULT.verdicts, gaps: GapRules = DEFAULT.gaps
    ) -> None:
        self._rules = rules
        self._enough_events = gaps.enough_events
        self._rule = rule
        self._book = book
        self.shortest_ns = round(min(rule.min_gap, rule.always) * NS)
        self.open: dict[int, Stall] = {}
        self._owners: dict[int, Request] = {}
        self._returned: list[tuple[int, int, tuple[float, int, int, int, int]]] = []  # what makes a `Return`
        self._returns: dict[tuple[int, int], Return] = {}
        self._watched: dict[int, Stall] = {}
        self._last_bursts: dict[int, int] = {}  # token events that ended the stall before
        self._bursts = Bursts(rules)

    def begin(self, slot: int, request: Request, time_ns: int) -> None:
        """Its first token came."""
        self._owners[slot] = request
        self._bursts.begin(slot, time_ns - request.sent_ns if request.sent_ns else 0, time_ns)

    def flows(self, stall: Stall) -> bool:
        """Whether it is known what a token of its stream takes when nothing disturbs it."""
        return self._book.baseline(stall.slot) is not None

    def bursts_around(self, stall: Stall, until_ns: int) -> int:
        """How many bursts of late are such as a hop lets go."""
        flows = self._book.baseline(stall.slot)
        return self._bursts.around(stall.started_ns, until_ns, flows * NS if flows is not None else 0.0)

    def owner(self, slot: int) -> Request | None:
        """Whose tokens go to this slot now."""
        return self._owners.get(slot)

    def returned(self, request: Request, slot: int, time_ns: int, events: int, chars: int, tokens: int = 0) -> None:
        """Before a read after a silence long enough to be a stall, or with a long text, is noted. ``tokens`` is what
        usage reported for it; 0: nothing. Slow streams have no other reads, so there is not more done than to keep
        what will be different afterwards."""
        share: float = events
        if tokens:
            each = request.reported_tokens / request.reported_events if request.reported_events else 1.0
            share = max(tokens / each, events)
        events_before = request.events
        burst = events_before if request.last_ns == request.first_ns else 0
        chars_before = request.chars if events_before >= self._enough_events else 0
        self._returned.append((slot, time_ns, (share, chars, chars_before, events_before, burst)))

    def leave(self, slot: int) -> Stall | None:
        """The stream is over; its stall if it was in one."""
        self._owners.pop(slot, None)
        self._watched.pop(slot, None)
        self._last_bursts.pop(slot, None)
        self._bursts.leave(slot)
        return self.open.pop(slot, None)

    def interrupt(self, slot: int) -> Stall | None:
        """Reads were lost: whether the gap goes on is unknown."""
        return self.open.pop(slot, None)

    def ended(self, gaps: Gaps, pace_ns: int) -> tuple[list[Stall], list[Stall]]:
        """Stalls that ended with these gaps, and open ones that turned out to be none. The gaps are in order of slot
        and time."""
        long = self._may_be_stalls(gaps.slot, gaps.end_ns - gaps.start_ns, pace_ns)
        if self.open:
            # Tokens that reached us late can make a silence look longer than it was: its end is looked at all the same.
            first = np.append(True, gaps.slot[1:] != gaps.slot[:-1])[: len(gaps)]
            long |= first & np.isin(gaps.slot, list(self.open))
        returned, self._returned = self._returned, []
        if not self._watched and not long.any():
            return [], []
        self._returns = {(slot, time_ns): Return(*details) for slot, time_ns, details in returned}
        found: list[Stall] = []
        none: list[Stall] = []
        if self._watched:
            watched = np.isin(gaps.slot, list(self._watched))
            for slot, read in zip(gaps.slot[watched].tolist(), self._reads(gaps, watched), strict=True):
                self._watched[slot].after.append(read)
        for index in np.flatnonzero(long).tolist():
            stall, wrong = self._end(gaps, index, pace_ns)
            if wrong is not None:
                none.append(wrong)
            if stall is not None:
                # Later reads of the same stream in this batch, if they come soon enough.
                last = int(gaps.slot.searchsorted(gaps.slot[index], "right"))
                reads = self._reads(gaps, slice(index + 1, last))
                stall.after += [
                    read for read in reads if read.time_ns <= stall.ended_ns + self._rules.most_aftermath_ns
                ]
                found.append(stall)
        self._returns = {}
        return found, none

    def _may_be_stalls(self, slots: IntArray, lengths_ns: IntArray, pace_ns: int) -> BoolArray:
        """Which gaps are so long that they are stalls unless they brought more than one token. Streams that are slow by
        nature have nothing but long gaps: to look at each of those would cost more than all else."""
        long = lengths_ns >= self.shortest_ns
        if long.any():
            which = np.flatnonzero(long)
            baselines = self._book.baselines(slots[which])
            baselines[np.isnan(baselines)] = pace_ns / NS
            long[which] = lengths_ns[which] >= least_seconds_of(self._rule, baselines) * (NS * _SURELY)
        return long

    def _reads(self, gaps: Gaps, which: npt.NDArray[np.bool_] | slice) -> list[ReadAfter]:
        """The reads that ended some of the gaps."""
        columns = (column[which].tolist() for column in (gaps.slot, gaps.end_ns, gaps.events))
        reads = []
        for slot, time_ns, events in zip(*columns, strict=True):
            details = self._returns.get((slot, time_ns))
            reads.append(ReadAfter(time_ns, events, details.held_back(events) if details is not None else 0.0))
        return reads

    def _end(self, gaps: Gaps, index: int, pace_ns: int) -> tuple[Stall | None, Stall | None]:
        slot, start_ns, end_ns = int(gaps.slot[index]), int(gaps.start_ns[index]), int(gaps.end_ns[index])
        known = self.open.pop(slot, None)
        request = self._owners.get(slot)
        if request is None:
            return None, known
        events = int(gaps.events[index])
        details = self._returns.get((slot, end_ns), Return(float(events)))
        baseline_ns, of = (known.baseline_ns, known.held_against) if known else self._yardstick(slot, pace_ns)
        tokens = max(details.tokens, 1.0)
        if not self._rule.holds((end_ns - start_ns) / NS, baseline_ns / NS, tokens):
            return None, known
        stall = known or Stall(request=request, model=int(gaps.model[index]), started_ns=start_ns, slot=slot)
        stall.started_ns, stall.ended_ns, stall.tokens, stall.baseline_ns = start_ns, end_ns, tokens, baseline_ns
        stall.held_against = of
        stall.excess_ns = max(0.0, end_ns - start_ns - tokens * baseline_ns)
        stall.events, stall.held_back = events, details.held_back(events)
        stall.burst_before = self._last_bursts.get(slot, details.first_burst)
        self._last_bursts[slot] = events
        last = int(gaps.slot.searchsorted(slot, "right"))
        events_before = self._book.totals(slot).events - int(gaps.events[index:last].sum())
        self._bursts.gap(slot, start_ns, end_ns, events_before)
        self._watched[slot] = stall
        return stall, None

    def _yardstick(self, slot: int, pace_ns: int) -> tuple[float, str]:
        """The baseline, and whose it is."""
        seconds, of = self._book.yardstick(slot)
        return (seconds * NS, of) if seconds is not None else (float(pace_ns), CLEAR_STEP)

    def silences(self, now_ns: int, pace_ns: int) -> list[Silence]:
        """What is silent now, and which of it is frozen. A stream whose own reader takes nothing is left out: we read
        no further for it, and a sleeping laptop is no freeze."""
        slots, seconds = self._book.open_gaps(now_ns)
        long = self._may_be_stalls(slots, np.rint(seconds * NS).astype(np.int64), pace_ns)
        found = []
        for slot, silent, frozen in zip(slots.tolist(), seconds.tolist(), long.tolist(), strict=True):
            request = self._owners.get(slot)
            if request is None:
                continue
            if request.blocked_since_ns and held_by_client(
                request, now_ns - round(silent * NS), now_ns, self._rules.most
            ):
                continue
            if frozen:
                frozen = self._rule.holds(silent, self._yardstick(slot, pace_ns)[0] / NS)
            found.append(Silence(slot, request, silent, frozen))
        return found

    def lasting(self, now_ns: int, pace_ns: int) -> list[Stall]:
        """Open gaps that count as stalls by now, old and new ones."""
        self._watched = {
            slot: each for slot, each in self._watched.items() if now_ns < each.ended_ns + self._rules.most_aftermath_ns
        }
        if not len(self._book):
            return []
        slots, silent_s = self._book.open_gaps(now_ns)
        silences_ns = np.rint(silent_s * NS).astype(np.int64)
        long = self._may_be_stalls(slots, silences_ns, pace_ns)
        if self.open:
            long |= (silences_ns >= self.shortest_ns) & np.isin(slots, list(self.open))
        for index in np.flatnonzero(long).tolist():
            slot, silent_ns = int(slots[index]), int(silences_ns[index])
            stall = self.open.get(slot) or self._notice(slot, now_ns - silent_ns, silent_ns, pace_ns)
            if stall is not None:
                stall.excess_ns = max(0.0, now_ns - stall.started_ns - stall.baseline_ns)
        return list(self.open.values())

    def _notice(self, slot: int, start_ns: int, silent_ns: int, pace_ns: int) -> Stall | None:
        request = self._owners.get(slot)
        baseline_ns, of = self._yardstick(slot, pace_ns)
        if request is None or not self._rule.holds(silent_ns / NS, baseline_ns / NS):
            return None
        model = self._book.model(slot)
        stall = Stall(request=request, model=model, started_ns=start_ns, slot=slot, baseline_ns=baseline_ns)
        stall.held_against = of
        self.open[slot] = stall
        self._bursts.gap(slot, start_ns, start_ns + silent_ns, self._book.totals(slot).events)
        return stall


def held_by_client(request: Request, start_ns: int, end_ns: int, most: float) -> bool:
    """Whether our write to its client was held up for most of this time: for this part of it."""
    return request.blocked_within(start_ns, end_ns) >= most * (end_ns - start_ns)


def least_seconds_of(rule: StallRule, baselines_s: FloatArray) -> FloatArray:
    """`StallRule.least_seconds` of many baselines at once, for one token each; 0 where a baseline is not known."""
    known = np.clip(rule.factor * baselines_s, rule.min_gap, None)
    return np.where(baselines_s > 0, np.minimum(known, rule.always), rule.always)
