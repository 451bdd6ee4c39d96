"""How sizes and times are cut: prompt sizes, sliding windows, bounds of histograms. Bounds are inclusive upper ones."""

from __future__ import annotations

from typing import Final

#: Lower edges, in tokens, of all prompt sizes but the first; a setting (prompt_buckets).
PROMPT_EDGES: Final = (512, 2048, 8192, 32768, 131072)
#: Lengths of the sliding windows in seconds; a setting (windows).
WINDOWS_S: Final = (10, 60, 300)
#: Gaps by what was in service during them: anything, a prompt, none.
POPULATIONS: Final = ("all", "prefill", "clear")

#: Prefill tokens of a step: upper bounds of all but the last of STEP_BUCKETS; a step without prefill is the first.
STEP_EDGES: Final = (0, 512, 2048, 8192)
STEP_BUCKETS: Final = ("none", "1-512", "512-2k", "2k-8k", "8k+")

# --- Bounds of histograms, in seconds ---

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
FIRST_TOKEN_BOUNDS: Final = (
    *(0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0),
    *(320.0, 640.0, 1200.0),
)
# Parts of a first token's time: coarser, since each is kept per bucket of tokens and the series are budgeted.
PART_BOUNDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 80.0, 320.0, 1200.0)
PER_TOKEN_BOUNDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0),
    *(40.0,),
)
#: How late a loop of ours is: few, since a relay sends its counts every second.
LAG_BOUNDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)

#: What happened over what was forecast, 1 being right: finest around it, and the same to either side.
FORECAST_BOUNDS: Final = (0.1, 0.25, 0.5, 0.67, 0.8, 0.9, 1.0, 1.11, 1.25, 1.5, 2.0, 4.0, 10.0)

# --- Bounds of histograms, in tokens ---

PROMPT_TOKEN_BOUNDS: Final = tuple(float(1 << power) for power in range(4, 21))
TOKENS_PER_EVENT_BOUNDS: Final = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 32.0, 64.0, 128.0)

#: Priorities of requests, lower ones first served by vLLM and 0 its default. Most who set one use two or three around
#: that; what is farther out is one class at either end.
PRIORITY_CLASSES: Final = ("<-1", "-1", "0", "1", ">1")
