"""What users were promised, and whether it was kept: token deadlines, TTFT and TPOT.

A client that gave up counts like any other, by what it had got until then: the silence in which it left is part of
that, or the worst freezes would be invisible.
"""

from __future__ import annotations

from prefillwatch.analysis.deadlines.fluidity import Fluidity
from prefillwatch.analysis.facts import Sink
from prefillwatch.analysis.requests import Request
from prefillwatch.analysis.settings import Slo
from prefillwatch.analysis.tokens import GapBook, Gaps
from prefillwatch.units import NS


class Promises:
    """O(1) state per stream: its slack."""

    def __init__(self, slo: Slo, book: GapBook, sink: Sink) -> None:
        self._slo = slo
        self._book = book
        self._sink = sink
        self._fluidity = Fluidity(round(slo.itl * NS))

    def begin(self, slot: int) -> None:
        """The first token of a stream came: its deadlines start."""
        self._fluidity.begin(slot)

    def gaps(self, model: int, gaps: Gaps) -> None:
        """Gaps that ended, all of one model, ordered by slot and time."""
        due, missed = self._fluidity.gaps(gaps.slot, gaps.end_ns - gaps.start_ns, gaps.events)
        self._sink.deadlines(model, int(due.sum()), int(missed.sum()))

    def ended(self, request: Request, time_ns: int, outcome: str) -> None:
        """The exchange is over: judge what the client had got until then."""
        if request.first_ns:
            if outcome == "ok":
                self._finished(request)
            elif outcome == "client_closed":
                self._left(request, time_ns)
            else:  # upstream ended it before its end: its promises are not kept
                self._last_silence(request, time_ns)
        elif outcome == "ok" and not request.streaming:
            self._whole(request, time_ns)

    def _finished(self, request: Request) -> None:
        """The answer came to its end."""
        tpot = self._book.time_per_output_token(list(request.slots.values()), request.generated)
        if tpot is not None:
            self._sink.tpot(request.model, tpot, request)
        self._judge(request, tpot)

    def _whole(self, request: Request, time_ns: int) -> None:
        """An answer that is not streamed came. Its first token is not seen, but the promises say when its last one is
        due."""
        if request.generated is None or not request.received_ns:
            return
        ttft_target_ns, tpot_target = self._targets(request)
        each = request.generated / request.sequences
        if time_ns - request.received_ns <= ttft_target_ns + max(each - 1, 0) * tpot_target * NS:
            self._kept(request)

    def _left(self, request: Request, time_ns: int) -> None:
        """The client left after its first token."""
        self._last_silence(request, time_ns)
        spent_ns = (time_ns - request.first_ns) * len(request.slots)
        self._judge(request, spent_ns / NS / max(request.tokens, 1))

    def _last_silence(self, request: Request, time_ns: int) -> None:
        for choice, slot in request.slots.items():
            if choice in request.over:
                continue
            last_ns = self._book.last_ns(slot)
            if last_ns is not None and not self._book.holed(slot):
                self._sink.deadlines(request.model, *self._fluidity.left(slot, time_ns - last_ns))

    def _judge(self, request: Request, tpot: float | None) -> None:
        ttft_target_ns, tpot_target = self._targets(request)
        if request.first_ns - request.received_ns <= ttft_target_ns and (tpot is None or tpot <= tpot_target):
            self._kept(request)

    def _kept(self, request: Request) -> None:
        request.within_slo = True
        self._sink.within_slo(request.model)

    def _targets(self, request: Request) -> tuple[float, float]:
        """TTFT in nanoseconds, TPOT in seconds: the request's own, else the configured ones."""
        ttft_ns = request.ttft_target_ns or self._slo.ttft * NS
        return ttft_ns, request.tpot_target_ns / NS or self._slo.tpot
