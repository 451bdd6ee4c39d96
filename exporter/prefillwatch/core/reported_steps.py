"""Steps that the plugin reports, on their way into the prefill timeline: each once, in order, and where they fit in.

Several API servers report the steps of one engine, each some of them, so the latest wait a little for those before.
The timeline is of one engine. With several (data-parallel ranks) it goes on by what the wire shows. Pure.
"""

from __future__ import annotations

from bisect import insort
from operator import attrgetter
from typing import Final

from prefillwatch.analysis.steps import PrefillTimeline
from prefillwatch.analysis.tuning import DEFAULT
from prefillwatch.engine.step_report import StepReport

#: A step waits so long for those before it. Its first tokens are known by then, too.
_WAIT_NS: Final = 6 * DEFAULT.first_tokens.reported_late_ns // 10
#: Further from now than this, the time is that of another clock.
_MOST_APART_NS: Final = 10_000_000_000

_by_end = attrgetter("end_ns")


class ReportedSteps:
    """Feed `add`, and call `hand_over` before the timeline settles."""

    def __init__(self, timeline: PrefillTimeline) -> None:
        self.unused = 0  # came too late, or with another clock
        self._timeline = timeline
        self._waiting: list[StepReport] = []
        self._end_ns = 0
        self._engines: set[int] = set()

    def add(self, report: StepReport, now_ns: int) -> None:
        if not report.is_step or report.prefill_tokens < 0:
            return
        if len(self._engines) < 2:
            self._engines.add(report.engine)
        settled_ns = max(self._end_ns, self._timeline.settled_ns)
        if report.end_ns <= settled_ns or abs(now_ns - report.end_ns) > _MOST_APART_NS:
            self.unused += 1
        elif len(self._engines) == 1:
            insort(self._waiting, report, key=_by_end)

    def hand_over(self, now_ns: int) -> None:
        """Hand over those that nothing can come before any more."""
        done = 0
        for report in self._waiting:
            if report.end_ns > now_ns - _WAIT_NS:
                break
            self._report(report)
            done += 1
        del self._waiting[:done]

    def _report(self, report: StepReport) -> None:
        start_ns = max(self._end_ns, report.end_ns - report.duration_ns)
        self._end_ns = report.end_ns
        requests = max(0, report.prefill_requests)
        self._timeline.engine_totals(
            start_ns, report.end_ns, max(0, report.decode_requests), report.prefill_tokens, requests
        )
