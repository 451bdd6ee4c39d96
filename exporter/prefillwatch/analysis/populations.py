"""Which prompt was in service during a gap: at first its population (prefill or clear), then the bucket of the prompt.

The population is known when the step that ended the gap has closed; whose prompt it was may only show when the waiting
requests get their first tokens. So a gap is judged twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from prefillwatch.analysis.arrays import BoolArray, IntArray, by_value
from prefillwatch.analysis.figures import Figures
from prefillwatch.analysis.requests import NONE, PromptBuckets
from prefillwatch.analysis.steps import PrefillTimeline
from prefillwatch.analysis.tokens import GapBook, Gaps, PendingGaps
from prefillwatch.analysis.tuning import DEFAULT, GapRules
from prefillwatch.units import NS

#: Gaps that wait for a final verdict; beyond this the oldest get the provisional one.
_MOST_PENDING: Final = 1 << 18


class GapPopulations:
    """``lagged`` says of moments whether we could not read then."""

    def __init__(
        self,
        timeline: PrefillTimeline,
        book: GapBook,
        buckets: PromptBuckets,
        figures: Figures,
        lagged: Callable[[IntArray], BoolArray],
        rules: GapRules = DEFAULT.gaps,
    ) -> None:
        self._patience_ns = rules.patience_ns
        self._timeline = timeline
        self._book = book
        self._buckets = buckets
        self._figures = figures
        self._lagged = lagged
        self._unjudged = PendingGaps(_MOST_PENDING)
        self._unsettled = PendingGaps(_MOST_PENDING)

    def add(self, gaps: Gaps) -> None:
        self._unjudged.add(gaps)

    def advance(self, now_ns: int) -> None:
        """Judge what can be judged by now, or cannot wait. Clear gaps make the baselines."""
        gaps = self._unjudged.due(max(self._timeline.settled_ns, now_ns - self._patience_ns))
        if gaps is not None:
            overlap = self._timeline.in_service(gaps.start_ns, gaps.end_ns)
            seconds = (gaps.end_ns - gaps.start_ns) / NS
            clear = overlap.tokens == 0
            self._book.note_clear(
                gaps.slot[clear], seconds[clear] / gaps.events[clear], gaps.model[clear], gaps.start_ns[clear]
            )
            lagged = self._lagged(gaps.end_ns)
            for model, own in by_value(gaps.model):
                self._figures.gaps_judged(model, seconds[own], overlap.tokens[own], int(lagged[own].sum()), now_ns)
            if overlap.provisional.any():
                final = ~overlap.provisional
                self._unsettled.add(gaps.pick(overlap.provisional))
                self._finish(gaps.pick(final), overlap.tokens[final])
            else:
                self._finish(gaps, overlap.tokens)
        gaps = self._unsettled.due(self._timeline.settled_ns)
        if gaps is not None:
            self._finish(gaps, self._timeline.in_service(gaps.start_ns, gaps.end_ns).tokens)

    def _finish(self, gaps: Gaps, in_service: IntArray) -> None:
        bucket = np.full(len(gaps), NONE)
        if in_service.any():
            bucket = np.where(in_service > 0, self._buckets.bucket_many(in_service), bucket)
        seconds = (gaps.end_ns - gaps.start_ns) / NS
        for model, own in by_value(gaps.model):
            self._figures.gaps_final(model, bucket[own], seconds[own])
