"""What an operator may set about the analysis, by the names of ``settings/declared.py``: ``stall_…``, ``wait_…`` and
``slo_…`` are sections. Times in seconds here at the edge; the books compute in nanoseconds."""

from __future__ import annotations

import msgspec

DEFAULT_PROMPT_EDGES = (512, 2048, 8192, 32768, 131072)
DEFAULT_WINDOWS_S = (10, 60, 300)


class StallRule(msgspec.Struct, frozen=True):
    """A gap is a stall when it is at least ``min_gap`` and ``factor`` times the baseline per token it brought, or at
    least ``always``, whoever kept the tokens."""

    min_gap: float = 0.1
    factor: float = 4.0
    always: float = 1.0

    def holds(self, gap_s: float, baseline_s: float | None, tokens: float = 1.0) -> bool:
        """Whether a gap that brought so many tokens is a stall. ``baseline_s`` is what one takes undisturbed; where it
        is not known (None or 0) only the longest gaps are."""
        return gap_s >= self.least_seconds(baseline_s, tokens)

    def least_seconds(self, baseline_s: float | None, tokens: float = 1.0) -> float:
        """The shortest gap that is a stall."""
        if not baseline_s:
            return self.always
        return min(max(self.min_gap, self.factor * baseline_s * tokens), self.always)


class WaitRule(msgspec.Struct, frozen=True):
    """A request without a first token is late after ``min`` and ``factor`` times what it should take."""

    min: float = 2.0
    factor: float = 4.0


class Slo(msgspec.Struct, frozen=True):
    """What users were promised; a request may bring its own by x-slo-ttft-ms and x-slo-tpot-ms."""

    ttft: float = 2.0
    tpot: float = 0.1
    itl: float = 0.2  # the target gap: token deadlines and the advice are made from it


class AnalysisSettings(msgspec.Struct, frozen=True):
    prompt_buckets: tuple[int, ...] = DEFAULT_PROMPT_EDGES
    windows: tuple[int, ...] = DEFAULT_WINDOWS_S
    stall: StallRule = StallRule()
    wait: WaitRule = WaitRule()
    slo: Slo = Slo()
    max_models: int = 32
