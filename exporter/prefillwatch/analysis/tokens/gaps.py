"""The books of token arrivals: gaps between tokens, first tokens, open gaps and baselines, kept in arrays.

A slot of the book is one sequence of tokens: one choice of one request. A gap (ITL) lies between two consecutive
reads that each completed at least one token event of the sequence. k events in one read end one gap; the other k - 1
are counted as coalesced and make no gaps of zero length. Where bytes were lost (a hole) no gap is measured across.

What the gaps of an undisturbed stream look like is kept in ``baselines``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from prefillwatch.analysis.arrays import FloatArray, IntArray, by_value
from prefillwatch.analysis.tokens.baselines import Baselines
from prefillwatch.analysis.tuning import DEFAULT, BaselineRules
from prefillwatch.units import NS

#: No time: no token yet, or none since a hole.
_NEVER: Final = -1
#: Slots at first; they double as needed.
_GROWTH_START: Final = 64


class GapBatch(NamedTuple):
    """What one batch of reads came to. The arrays run side by side, one entry per gap, ordered by slot and time."""

    slot: IntArray
    model: IntArray
    start_ns: IntArray
    end_ns: IntArray
    #: Token events in the read that ended the gap.
    events: IntArray
    #: (slot, time) of each sequence's first token seen. After a hole it may not be the true first; see GapBook.holed.
    firsts: list[tuple[int, int]]
    #: Token events that came along in a read with others, by model.
    coalesced: dict[int, int]
    #: Of each read its model, its time and its token events.
    read_model: IntArray
    read_ns: IntArray
    read_events: IntArray


#: What a gap can be held against: the median of the clear gaps of its own stream or of its model, or the lower quartile
#: of all gaps of its model.
OF_STREAM: Final = "clear gaps of the stream"
OF_MODEL: Final = "clear gaps of the model"
OF_QUICKEST: Final = "quickest gaps of the model"


class Yardstick(NamedTuple):
    """What a token takes when nothing disturbs its stream; None while that is not known."""

    seconds: float | None
    of: str


class SequenceTotals(NamedTuple):
    """What the book knows of one sequence."""

    first_ns: int | None
    last_ns: int | None
    events: int
    holed: bool


class GapBook:
    """Token times of all sequences that are being streamed.

    Times are monotonic nanoseconds. Calls come in the order of time: reads are noted before a hole in, or the closing
    of, their slot.
    """

    __slots__ = (
        "_baselines",
        "_done",
        "_events",
        "_first_ns",
        "_free",
        "_from_ns",
        "_holed",
        "_last_ns",
        "_model",
        "_open",
    )

    def __init__(self, rules: BaselineRules = DEFAULT.baselines) -> None:
        size = _GROWTH_START
        self._model: IntArray = np.zeros(size, dtype=np.int64)
        self._first_ns: IntArray = np.full(size, _NEVER, dtype=np.int64)
        self._last_ns: IntArray = np.full(size, _NEVER, dtype=np.int64)
        # Where the running gap began; unlike _last_ns forgotten at a hole.
        self._from_ns: IntArray = np.full(size, _NEVER, dtype=np.int64)
        self._events: IntArray = np.zeros(size, dtype=np.int64)
        self._open = np.zeros(size, dtype=np.bool_)
        self._done = np.zeros(size, dtype=np.bool_)
        self._holed = np.zeros(size, dtype=np.bool_)
        self._free = list(range(size - 1, -1, -1))
        self._baselines = Baselines(rules)

    def __len__(self) -> int:
        """How many slots are open."""
        return len(self._open) - len(self._free)

    def open(self, model: int) -> int:
        """A slot for a new sequence of ``model``."""
        if not self._free:
            self._grow()
        slot = self._free.pop()
        self._model[slot] = model
        for times in (self._first_ns, self._last_ns, self._from_ns):
            times[slot] = _NEVER
        self._events[slot] = 0
        self._open[slot] = True
        self._done[slot] = False
        self._holed[slot] = False
        self._baselines.open(slot)
        return slot

    def _grow(self) -> None:
        size = len(self._open)
        for name in ("_model", "_first_ns", "_last_ns", "_from_ns", "_events", "_open", "_done", "_holed"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
        self._free.extend(range(2 * size - 1, size - 1, -1))

    def close(self, slot: int) -> None:
        """Free the slot."""
        if not self._open[slot]:
            raise ValueError(f"slot {slot} is not open")
        self._open[slot] = False
        self._from_ns[slot] = _NEVER
        self._free.append(slot)

    def hole(self, slot: int) -> None:
        """Bytes of the sequence were lost: the next token ends no gap, and what was counted is not all."""
        self._from_ns[slot] = _NEVER
        self._holed[slot] = True

    def silent_since(self, slot: int, time_ns: int) -> None:
        """After a hole: the last read of the sequence was at this moment, and whatever comes will be seen again."""
        if self._open[slot] and self._from_ns[slot] == _NEVER:
            self._from_ns[slot] = time_ns

    def finish(self, slot: int, *, done: bool = True) -> None:
        """No more tokens are due (the finish reason came): silence from here on is no open gap. ``done`` False: there
        are more after all."""
        self._done[slot] = done

    def tokens(self, slots: Sequence[int], times_ns: Sequence[int], events: Sequence[int]) -> GapBatch:
        """Note reads: of which slot, when, and how many token events (at least one) each completed.

        The reads may come in any order and several may be of one slot. Entries of one slot with the same time are
        parts of one read.
        """
        slot, time, count = (np.fromiter(column, np.int64, len(slots)) for column in (slots, times_ns, events))
        time = np.maximum(time, self._from_ns[slot])
        order = np.lexsort((time, slot))
        slot, time, count = slot[order], time[order], count[order]
        slot, time, count = _merge_parts(slot, time, count)
        head = np.empty(len(slot), dtype=np.bool_)  # the first read of its slot in this batch
        head[:1] = True
        np.not_equal(slot[1:], slot[:-1], out=head[1:])
        start = self._from_ns[slot]
        np.copyto(start[1:], time[:-1], where=~head[1:])

        known = start != _NEVER
        gap = known & (time > start)
        firsts = self._note_firsts(slot, time, head)
        coalesced = self._coalesced(slot, count, known & ~gap)
        self._note_reads(slot, time, count, head)
        reads = (self._model[slot], time, count)
        slot, start, time, count = slot[gap], start[gap], time[gap], count[gap]
        return GapBatch(slot, self._model[slot], start, time, count, firsts, coalesced, *reads)

    def generated(self, batch: GapBatch) -> dict[int, int]:
        """Token events of a batch by model: first tokens, those that ended gaps, and coalesced ones."""
        events = dict(batch.coalesced)
        for slot, _ in batch.firsts:
            model = self.model(slot)
            events[model] = events.get(model, 0) + 1
        for model, own in by_value(batch.model):
            events[model] = events.get(model, 0) + len(batch.model[own])
        return events

    def _note_firsts(self, slot: IntArray, time: IntArray, head: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
        fresh = head & (self._first_ns[slot] == _NEVER)
        if not fresh.any():
            return []
        slot, time = slot[fresh], time[fresh]
        self._first_ns[slot] = time
        return list(zip(slot.tolist(), time.tolist(), strict=True))

    def _coalesced(self, slot: IntArray, count: IntArray, continued: npt.NDArray[np.bool_]) -> dict[int, int]:
        # The rest of a read whose beginning was noted in an earlier batch is coalesced as a whole.
        extra = count - 1 + continued
        if not extra.any():
            return {}
        sums = np.bincount(self._model[slot], weights=extra)
        return {int(model): int(sums[model]) for model in np.flatnonzero(sums)}

    def _note_reads(self, slot: IntArray, time: IntArray, count: IntArray, head: npt.NDArray[np.bool_]) -> None:
        np.add.at(self._events, slot, count)
        tail = np.append(head[1:], True)[: len(slot)]
        slot, time = slot[tail], time[tail]
        self._last_ns[slot] = time
        self._from_ns[slot] = time

    def open_gaps(self, now_ns: int) -> tuple[IntArray, FloatArray]:
        """The decoding slots and for how many seconds each has been silent at ``now_ns``.

        Left out are slots without a first token, finished ones, and those that lost bytes since their last token.
        """
        slots = np.flatnonzero(self._open & ~self._done & (self._from_ns != _NEVER))
        silent_ns = np.maximum(now_ns - self._from_ns[slots], 0)
        return slots, silent_ns / NS

    def totals(self, slot: int) -> SequenceTotals:
        first, last = int(self._first_ns[slot]), int(self._last_ns[slot])
        return SequenceTotals(
            None if first == _NEVER else first,
            None if last == _NEVER else last,
            int(self._events[slot]),
            bool(self._holed[slot]),
        )

    def spans(self, slots: list[int]) -> Iterator[tuple[int, int]]:
        """When the first token of each came, and when the last; 0: none was seen."""
        times = (np.maximum(column[slots], 0).tolist() for column in (self._first_ns, self._last_ns))
        return zip(*times, strict=True)

    def model(self, slot: int) -> int:
        return int(self._model[slot])

    def holed(self, slot: int) -> bool:
        """Whether bytes of the sequence were lost, so that its first token and its counts cannot be trusted."""
        return bool(self._holed[slot])

    def last_ns(self, slot: int) -> int | None:
        """When the last token came; None before the first."""
        return self.totals(slot).last_ns

    def time_per_output_token(self, slots: Sequence[int], tokens: int | None = None) -> float | None:
        """TPOT of a finished request: (last - first token) / (tokens - 1), in seconds.

        ``tokens`` is what usage reported for the whole request; without it token events are counted. The choices of a
        request run side by side, so their spans and their token counts are summed. None for less than two tokens, and
        when bytes were lost.
        """
        totals = [t for t in map(self.totals, slots) if t.first_ns is not None]
        steps = (sum(t.events for t in totals) if tokens is None else tokens) - len(totals)
        if not totals or steps < 1 or any(t.holed for t in totals):
            return None
        return sum((t.last_ns or 0) - (t.first_ns or 0) for t in totals) / NS / steps

    def note_clear(
        self,
        slots: npt.ArrayLike,
        gap_per_token: npt.ArrayLike,
        models: npt.ArrayLike | None = None,
        start_ns: npt.ArrayLike | None = None,
    ) -> None:
        """Clear gaps per token, in seconds: gaps during which no prefill was in service. In order of time per slot.

        A verdict may come after the slot was closed and given to another sequence. With ``models`` and ``start_ns``
        of the gaps, such a gap counts for the model it was of and not for the slot's new owner.
        """
        slot = np.asarray(slots, dtype=np.int64)
        if not slot.size:
            return
        gaps = np.asarray(gap_per_token, dtype=np.float64)
        self._baselines.note_models(self._model[slot] if models is None else np.asarray(models, dtype=np.int64), gaps)
        if start_ns is not None:
            first_ns = self._first_ns[slot]
            own = self._open[slot] & (first_ns != _NEVER) & (np.asarray(start_ns, dtype=np.int64) >= first_ns)
            if not own.all():
                slot, gaps = slot[own], gaps[own]
        self._baselines.note_slots(slot, gaps)

    def note_disturbed(self, models: IntArray, gap_per_token: FloatArray) -> None:
        """Gaps per token, in seconds, during which a prefill was in service."""
        if models.size:
            self._baselines.note_disturbed(models, gap_per_token)

    def baseline(self, slot: int) -> float | None:
        """Seconds per token of this sequence when undisturbed, else of its model, else what the quickest gaps of the
        model take while none is undisturbed; None while nothing of this is known."""
        return self.yardstick(slot).seconds

    def yardstick(self, slot: int) -> Yardstick:
        """`baseline`, and whose it is."""
        own = self._baselines.of_slot(slot)
        if own is not None:
            return Yardstick(own, OF_STREAM)
        clear = self._baselines.of_model(self.model(slot))
        if clear is not None:
            return Yardstick(clear, OF_MODEL)
        return Yardstick(self._baselines.of_disturbed(self.model(slot)), OF_QUICKEST)

    def _of_model(self, model: int) -> float | None:
        clear = self._baselines.of_model(model)
        return clear if clear is not None else self._baselines.of_disturbed(model)

    def baselines(self, slots: IntArray) -> FloatArray:
        """`baseline` of many slots at once; not a number where it is None."""
        found = self._baselines.of_slots(slots)
        unknown = np.isnan(found)
        if unknown.any():
            models = self._model[slots]
            for model in np.unique(models[unknown]).tolist():
                its = self._of_model(model)
                if its is not None:
                    found[unknown & (models == model)] = its
        return found

    def own_baselines(self, slots: IntArray) -> FloatArray:
        """Seconds per token of these sequences when undisturbed; not a number where one has too few such gaps."""
        return self._baselines.of_slots(slots)

    def model_baseline(self, model: int) -> float | None:
        """Seconds per token of an undisturbed stream of the model; None while less than three gaps are known."""
        return self._baselines.of_model(model)

    def baseline_samples(self, model: int, most: int) -> list[float]:
        """The last gaps that the model's baseline is made from, seconds per token."""
        return self._baselines.newest(model, most)

    def recall_baseline(self, model: int, gaps: list[float]) -> None:
        """Go on with such gaps that were seen elsewhere."""
        self._baselines.recall(model, gaps)

    def forget_model(self, model: int) -> None:
        """Drop the model's baseline, before its number goes to another model."""
        self._baselines.forget_model(model)


def _merge_parts(slot: IntArray, time: IntArray, count: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Make one entry of neighbours with the same slot and time."""
    new = (slot[1:] != slot[:-1]) | (time[1:] != time[:-1])
    if new.all():
        return slot, time, count
    begin = np.flatnonzero(np.append(True, new))
    return slot[begin], time[begin], np.add.reduceat(count, begin)
