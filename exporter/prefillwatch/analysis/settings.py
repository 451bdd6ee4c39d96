"""What an operator may set about the analysis, by the names of ``settings/declared.py``: ``stall_…``, ``wait_…`` and
``slo_…`` are sections. Times in seconds here at the edge; the books compute in nanoseconds.

No numpy here: the supervisor reads these settings, and a tight filter of system calls would kill it for loading that.
"""

from __future__ import annotations

import msgspec

from prefillwatch.contract import limits
from prefillwatch.contract.buckets import PROMPT_EDGES, WINDOWS_S


class StallRule(msgspec.Struct, frozen=True):
    """A gap is a stall when it is at least ``min_gap`` and ``factor`` times the baseline per token it brought, or at
    least ``always``, whatever held the tokens back."""

    min_gap: float = limits.STALL_MIN_GAP
    factor: float = limits.STALL_FACTOR
    always: float = limits.STALL_ALWAYS

    def holds(self, gap_s: float, baseline_s: float | None, tokens: float = 1.0) -> bool:
        """Whether a gap that brought so many tokens is a stall. ``baseline_s`` is what one token takes undisturbed;
        None or 0 where that is not known, and then only the longest gaps are stalls. (A median of 0 comes of tokens
        that were delivered in bursts, and shows no pace.)"""
        return gap_s >= self.least_seconds(baseline_s, tokens)

    def least_seconds(self, baseline_s: float | None, tokens: float = 1.0) -> float:
        """The shortest gap that is a stall."""
        if not baseline_s:
            return self.always
        return min(max(self.min_gap, self.factor * baseline_s * tokens), self.always)


class WaitRule(msgspec.Struct, frozen=True):
    """A request without a first token is late after ``min`` and ``factor`` times what it should take."""

    min: float = limits.WAIT_MIN
    factor: float = limits.WAIT_FACTOR


class Slo(msgspec.Struct, frozen=True):
    """What users were promised; a request may bring its own by x-slo-ttft-ms and x-slo-tpot-ms."""

    ttft: float = limits.FIRST_TOKEN_PROMISE
    tpot: float = limits.PER_TOKEN_PROMISE
    itl: float = limits.ITL_PROMISE  # the target gap: token deadlines and the advice are made from it


class AnalysisSettings(msgspec.Struct, frozen=True):
    prompt_buckets: tuple[int, ...] = PROMPT_EDGES
    windows: tuple[int, ...] = WINDOWS_S
    stall: StallRule = StallRule()
    wait: WaitRule = WaitRule()
    slo: Slo = Slo()
    max_models: int = limits.MAX_MODELS
    max_tenants: int = 0  # 0: tenants are not told apart
    priorities: bool = False
