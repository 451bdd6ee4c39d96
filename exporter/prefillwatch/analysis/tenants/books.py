"""The figures of one tenant, or of one class of priority."""

from __future__ import annotations

from dataclasses import dataclass

from prefillwatch.analysis.tokens import SlidingWindows


@dataclass(slots=True)
class Totals:
    """They only rise. Seconds are those that stalls lasted beyond the usual gap."""

    requests: int = 0  # for text: others have no promises to keep
    within_slo: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    caused: float = 0.0  # by its prompts, to streams of others
    suffered: float = 0.0  # by its streams, because of prompts of others
    itself: float = 0.0  # by its prompts, to its own streams
    nobody: float = 0.0  # by its streams, and no prompt was to blame


class SenderBook:
    """Totals, and windows over gaps and times to first token."""

    __slots__ = ("gaps", "totals", "ttft")

    def __init__(self, windows_s: tuple[int, ...], totals: Totals) -> None:
        self.totals = totals
        self.gaps = SlidingWindows(windows_s)
        self.ttft = SlidingWindows(windows_s)

    def advance(self, now_ns: int) -> None:
        self.gaps.advance(now_ns)
        self.ttft.advance(now_ns)
