"""What the plugin inside vLLM reports, beside what the wire shows: gaps taken apart by where they came about.

The engine's gaps, the same gaps as the API server took them in, and ours at the wire are one population measured at
three places. The 99th percentile grows on the way from one place to the next; by how much is the part of what lies
between. So the parts of a window add up to the 99th percentile at the wire. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from prefillwatch.analysis.tokens import SlidingWindows, quantile_of_all
from prefillwatch.engine.step_report import StepReport
from prefillwatch.units import NS

_P99: Final = 0.99
#: A link that says nothing for so long may have ended its chain of steps.
_MOST_LAGS: Final = 1024


#: What a step computes tokens for: prompts, or answers.
PHASES: Final = ("prefill", "decode")


class EngineSteps:
    """Sums over the steps that API servers reported, and windows of their gaps. Give times that never fall."""

    def __init__(self, windows_s: Iterable[int]) -> None:
        windows = tuple(windows_s)
        # Reported so far:
        self.steps = 0
        self.tokens = dict.fromkeys(PHASES, 0)
        self.finished = 0  # requests
        self.queued_s = 0.0  # that these waited for the scheduler
        self._engine = SlidingWindows(windows)
        self._frontend = SlidingWindows(windows)
        self._lags: dict[tuple[int, int], int] = {}  # of the last step, by link and engine

    def take(self, link: int, report: StepReport, now_ns: int) -> None:
        self.steps += report.is_step
        if report.is_step:
            for phase, tokens in zip(PHASES, (report.prefill_tokens, report.decode_tokens), strict=True):
                self.tokens[phase] += max(0, tokens)  # -1: not reported
        self.finished += len(report.finished)
        self.queued_s += sum(max(0.0, each.queued_s) for each in report.finished)
        lag_ns = max(0, report.taken_ns - report.end_ns)
        grown_s = (lag_ns - self._lags.get((link, report.engine), lag_ns)) / NS
        if len(self._lags) >= _MOST_LAGS:
            self._lags.clear()
        self._lags[link, report.engine] = lag_ns
        if report.gaps:
            gaps = np.array([gap for gap, _ in report.gaps], np.float64)
            counts = np.clip([count for _, count in report.gaps], 0, 10_000)
            gaps = np.repeat(gaps[np.isfinite(gaps)], counts[np.isfinite(gaps)])
            self._engine.add_many(gaps, now_ns)
            self._frontend.add_many(np.maximum(gaps + grown_s, 0.0), now_ns)

    def advance(self, now_ns: int) -> None:
        """Let go of what is too old."""
        self._engine.advance(now_ns)
        self._frontend.advance(now_ns)

    def parts(self, wire: Iterable[SlidingWindows], window_s: int) -> dict[str, float]:
        """Seconds of the 99th percentile at the wire by part; empty while one of the places has seen nothing.

        A part is 0 where the percentile did not grow: the populations differ a little at the window's edges.
        """
        at_engine = self._engine.quantile(_P99, window_s)
        at_frontend = self._frontend.quantile(_P99, window_s)
        at_wire = quantile_of_all(wire, _P99, window_s)
        if at_engine is None or at_frontend is None or at_wire is None:
            return {}
        frontend = max(0.0, min(at_frontend, at_wire) - at_engine)
        engine = min(at_engine, at_wire)
        return {"engine": engine, "frontend": frontend, "network": at_wire - engine - frontend}
