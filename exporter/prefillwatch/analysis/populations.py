"""Which prompt was in service during a gap: at first its population (prefill or clear), then the bucket of the prompt.

The population is known when the step that ended the gap has closed; whose prompt it was may only show when the waiting
requests get their first tokens. So a gap is judged twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from prefillwatch.analysis.arrays import BoolArray, FloatArray, IntArray, by_value
from prefillwatch.analysis.engines import Engines
from prefillwatch.analysis.figures import Figures
from prefillwatch.analysis.model_books import UNKNOWN
from prefillwatch.analysis.requests import NONE, PromptBuckets, Request
from prefillwatch.analysis.tokens import GapBook, Gaps, PendingGaps
from prefillwatch.analysis.tuning import DEFAULT, Tuning
from prefillwatch.units import NS

#: Gaps that wait for a final verdict; beyond this the oldest get the provisional one.
_MOST_PENDING: Final = 1 << 18
#: Of the long gaps of one batch of reads, the longest so many are told with their request.
_MOST_NAMED: Final = 16


class GapPopulations:
    """``lagged`` says of moments whether we could not read then, ``owner`` whose tokens go to a slot now. Gaps of
    ``long_ns`` are told with their request.

    Clear gaps make the baselines. A gap that is a delay by the baseline of its stream does not: a plateau of such gaps
    becomes the baseline when nobody caused it for a while.
    """

    def __init__(
        self,
        engines: Engines,
        book: GapBook,
        buckets: PromptBuckets,
        figures: Figures,
        lagged: Callable[[IntArray], BoolArray],
        owner: Callable[[int], Request | None],
        long_ns: int,
        tuning: Tuning = DEFAULT,
    ) -> None:
        self._patience_ns = tuning.gaps.patience_ns
        self._flow = tuning.flow
        self._slow_since_ns: dict[int, int] = {}  # by model: since when no gap was like its baseline
        self._engines = engines
        self._book = book
        self._buckets = buckets
        self._figures = figures
        self._lagged = lagged
        self._owner = owner
        self._long_ns = long_ns
        self._whose: dict[tuple[int, int], Request] = {}  # long gaps that wait, by slot and end
        self._unjudged = PendingGaps(_MOST_PENDING)
        self._unsettled = PendingGaps(_MOST_PENDING)

    def add(self, gaps: Gaps) -> None:
        self._unjudged.add(gaps)
        lengths_ns = gaps.end_ns - gaps.start_ns
        long = np.flatnonzero(lengths_ns >= self._long_ns)
        for place in long[np.argsort(lengths_ns[long], kind="stable")[-_MOST_NAMED:]].tolist():
            slot = int(gaps.slot[place])
            request = self._owner(slot)  # by the time that the verdict is there the slot may be another's
            if request is not None:
                self._whose[slot, int(gaps.end_ns[place])] = request

    def advance(self, now_ns: int) -> None:
        """Judge what can be judged by now, or cannot wait. Clear gaps make the baselines."""
        gaps = self._unjudged.due(max(self._engines.settled_ns, now_ns - self._patience_ns))
        if gaps is not None:
            overlap = self._engines.in_service(gaps.slot, gaps.start_ns, gaps.end_ns)
            seconds = (gaps.end_ns - gaps.start_ns) / NS
            unread = self._engines.timeline.unread.during_many(gaps.start_ns, gaps.end_ns)
            in_service = np.where(unread & (overlap.tokens == 0), UNKNOWN, overlap.tokens)
            lagged = self._lagged(gaps.end_ns)
            per_token, teaches = seconds / gaps.events, gaps.teaches & ~lagged
            self._teach(gaps, per_token, (in_service == 0) & teaches)
            disturbed = (in_service > 0) & teaches
            self._book.note_disturbed(gaps.model[disturbed], per_token[disturbed])
            for model, own in by_value(gaps.model):
                self._figures.gaps_judged(model, seconds[own], in_service[own], int(lagged[own].sum()), now_ns)
            if overlap.provisional.any():
                final = ~overlap.provisional
                self._unsettled.add(gaps.pick(overlap.provisional))
                self._finish(gaps.pick(final), overlap.tokens[final])
            else:
                self._finish(gaps, overlap.tokens)
        gaps = self._unsettled.due(self._engines.settled_ns)
        if gaps is not None:
            self._finish(gaps, self._engines.in_service(gaps.slot, gaps.start_ns, gaps.end_ns).tokens)

    def _teach(self, gaps: Gaps, per_token: FloatArray, clear: BoolArray) -> None:
        """Let clear gaps make the baselines."""
        slow = clear & (gaps.end_ns - gaps.start_ns >= self._flow.long_ns)
        if slow.any():
            which = np.flatnonzero(slow)
            known = self._book.own_baselines(gaps.slot[which])
            known[np.isnan(known)] = np.inf
            step_s = self._engines.clear_step_ns / NS
            slow[which] = per_token[which] > self._flow.jump * np.maximum(known, step_s)
        for model, own in by_value(gaps.model[clear]) if slow.any() or self._slow_since_ns else ():
            its_slow, ends_ns = slow[clear][own], gaps.end_ns[clear][own]
            if not its_slow.all():
                self._slow_since_ns.pop(model, None)
                continue
            since_ns = self._slow_since_ns.setdefault(model, int(ends_ns.min()))
            if int(ends_ns.max()) - since_ns >= self._flow.plateau_ns:
                slow[gaps.model == model] = False
        clear &= ~slow
        self._book.note_clear(gaps.slot[clear], per_token[clear], gaps.model[clear], gaps.start_ns[clear])

    def _finish(self, gaps: Gaps, in_service: IntArray) -> None:
        bucket = np.full(len(gaps), NONE)
        if in_service.any():
            bucket = np.where(in_service > 0, self._buckets.bucket_many(in_service), bucket)
        seconds = (gaps.end_ns - gaps.start_ns) / NS
        for model, own in by_value(gaps.model):
            self._figures.gaps_final(model, bucket[own], seconds[own])
        if self._whose:
            for place in np.flatnonzero(gaps.end_ns - gaps.start_ns >= self._long_ns).tolist():
                ended_ns = int(gaps.end_ns[place])
                request = self._whose.pop((int(gaps.slot[place]), ended_ns), None)
                if request is not None:
                    model, length_s = int(gaps.model[place]), float(seconds[place])
                    self._figures.long_gap(model, int(bucket[place]), length_s, request, ended_ns)
