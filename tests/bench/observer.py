"""How many tokens per second the observer can account for on one core."""

from __future__ import annotations


def measure(seconds: float) -> dict[str, float]:
    """Feed the observer's own code with tap batches as fast as it takes them; `seconds` of work, on the calling thread."""
    return {}
