"""When a token is due, and whether the promises on latency were kept."""

from prefillwatch.analysis.deadlines.promises import Promises

__all__ = [
    "Promises",
]
