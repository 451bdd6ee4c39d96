"""The sliding windows of each model."""

from __future__ import annotations

from typing import Final

from prefillwatch.analysis.arrays import FloatArray, IntArray
from prefillwatch.analysis.requests import prompt_length_windows
from prefillwatch.analysis.tokens import ConcurrencyMeter, GapPromptCorrelation, SlidingWindows

#: In place of the size of a prompt in service.
UNKNOWN: Final = -1


class ModelBooks:
    """Gaps in three populations (all, prefill: a prompt was in service meanwhile, clear), TTFT by prompt bucket, prompt
    lengths, and throughput by concurrency."""

    __slots__ = (
        "all_gaps",
        "clear_gaps",
        "concurrency",
        "correlation",
        "prefill_gaps",
        "prompts",
        "ttft",
        "windows_s",
    )

    def __init__(self, windows_s: tuple[int, ...], buckets: int) -> None:
        self.windows_s = windows_s
        self.all_gaps = SlidingWindows(windows_s)
        self.prefill_gaps = SlidingWindows(windows_s)
        self.clear_gaps = SlidingWindows(windows_s)
        self.ttft: list[SlidingWindows | None] = [None] * buckets
        self.prompts = prompt_length_windows(windows_s)
        self.correlation = GapPromptCorrelation(max(windows_s))
        self.concurrency = ConcurrencyMeter()

    def judged(self, seconds: FloatArray, in_service: IntArray, now_ns: int) -> None:
        """Gaps whose population is known: ``in_service`` is the largest prompt in service during each, 0 for none, and
        `UNKNOWN` where the server had work that nobody can read, which is neither."""
        if in_service.any():
            prefill = in_service > 0
            if prefill.any():
                self.prefill_gaps.add_many(seconds[prefill], now_ns)
            seconds = seconds[in_service == 0]
        if len(seconds):
            self.clear_gaps.add_many(seconds, now_ns)

    def first_token(self, bucket: int, seconds: float, now_ns: int) -> None:
        window = self.ttft[bucket]
        if window is None:
            window = self.ttft[bucket] = SlidingWindows(self.windows_s)
        window.add(seconds, now_ns)

    def advance(self, now_ns: int) -> None:
        for window in (self.all_gaps, self.prefill_gaps, self.clear_gaps, self.prompts, *self.ttft):
            if window is not None:
                window.advance(now_ns)

    def interference_ratio(self, window_s: int) -> float | None:
        """p99 of gaps that overlapped a prefill over p99 of clear gaps; None while one side is empty."""
        prefill = self.prefill_gaps.quantile(0.99, window_s)
        clear = self.clear_gaps.quantile(0.99, window_s)
        return prefill / clear if prefill and clear else None


class Models(dict[int, ModelBooks]):
    """The books of each model by its number, begun when they are first asked for."""

    def __init__(self, windows_s: tuple[int, ...], buckets: int) -> None:
        super().__init__()
        self._windows_s = windows_s
        self._buckets = buckets

    def begin(self, model: int) -> ModelBooks:
        """Empty books."""
        books = self[model] = ModelBooks(self._windows_s, self._buckets)
        return books

    def __missing__(self, model: int) -> ModelBooks:
        return self.begin(model)
