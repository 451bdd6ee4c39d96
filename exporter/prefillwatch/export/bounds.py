"""Bounds of gaps and steps. By themselves, so that the plugin inside vLLM has them without importing anything more."""

from __future__ import annotations

from typing import Final

#: Upper bounds, inclusive, of all but the last of STEP_BUCKETS; a step without prefill work is the first.
STEP_EDGES: Final = (0, 512, 2048, 8192)
STEP_BUCKETS: Final = ("none", "1-512", "512-2k", "2k-8k", "8k+")

# vLLM's own edges from 10 ms to 80 s, so that both can be laid over each other; finer below, where a fast model lives,
# and between them where the edges are more than 1.5 apart and freezes are common.
GAP_BOUNDS: Final = (
    *(0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3),
    *(0.4, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 120.0),
)
# Coarser, since steps are kept per bucket of tokens and the series are budgeted.
STEP_BOUNDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 30.0),
)
