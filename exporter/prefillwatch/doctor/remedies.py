"""What to change, in the words of vLLM's flags."""

from __future__ import annotations

from prefillwatch.doctor.figures import Figures


def budget_advice(figures: Figures) -> str:
    """The sidecar's own advice for this server; empty while it has no number to advise."""
    return "; ".join(
        (f"{advice.model}: " if len(figures.advice) > 1 else "") + _as_flags(advice.words)
        for advice in figures.advice
        if advice.max_batched_tokens is not None
    )


def _as_flags(words: str) -> str:
    return words.replace("max_num_batched_tokens=", "--max-num-batched-tokens ").replace(
        "with chunked prefill on, ", "--enable-chunked-prefill, "
    )
