"""What a colour means, the same on every panel: orange is prefill, blue is what no prefill touched."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

from prefillwatch.export.bounds import STEP_BUCKETS
from prefillwatch.export.table import CONCURRENT_PROMPT

PREFILL = "#FF9830"
CLEAR = "#5794F2"
ALL = "#9FA7B3"
QUEUE = "#B877D9"
GOOD = "#73BF69"
WARN = "#F2CC0C"
BAD = "#F2495C"

POPULATIONS = {"prefill": PREFILL, "clear": CLEAR, "all": ALL}

CAUSES = {
    "prefill": PREFILL,
    "preemption": "#8F3BB8",
    "frontend": "#F2CC0C",
    "buffering": "#37872D",
    "client": "#8AB8FF",
    "engine_pause": "#C4162A",
    "queueing": QUEUE,
    "warmup": "#FFCB7D",
    "stuck": BAD,
    "before_engine": "#37872D",
    "unattributed": ALL,
}

# The longer the prompt, the hotter; no prompt at all has the colour of clear gaps.
_HEAT = ("#FFF899", "#F2CC0C", "#FF9830", "#FA6400", "#E02F44", "#A352CC")
NO_PROMPT = "none"


def _heated(labels: Iterable[str]) -> dict[str, str]:
    sizes = [label for label in labels if label != NO_PROMPT]
    return {NO_PROMPT: CLEAR, **dict(zip(sizes, (*_HEAT, *repeat(_HEAT[-1], len(sizes))), strict=False))}


PROMPT_SIZES = _heated(CONCURRENT_PROMPT.values)
STEP_SIZES = _heated(STEP_BUCKETS)
