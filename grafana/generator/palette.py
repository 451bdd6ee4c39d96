"""What a colour means, the same on every panel: orange is prefill, blue is what no prefill touched."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

from prefillwatch.contract import causes
from prefillwatch.contract.buckets import STEP_BUCKETS
from prefillwatch.export.table import CONCURRENT_PROMPT

PREFILL = causes.BY_NAME[causes.PREFILL].colour
CLEAR = "#5794F2"
ALL = "#9FA7B3"
QUEUE = causes.BY_NAME[causes.QUEUEING].colour
GOOD = "#73BF69"
WARN = "#F2CC0C"
BAD = "#F2495C"

POPULATIONS = {"prefill": PREFILL, "clear": CLEAR, "all": ALL}

CAUSES = {cause.name: cause.colour for cause in causes.CAUSES}

# The longer the prompt, the hotter; no prompt at all has the colour of clear gaps.
_HEAT = ("#FFF899", "#F2CC0C", "#FF9830", "#FA6400", "#E02F44", "#A352CC")
NO_PROMPT = "none"


def _heated(labels: Iterable[str]) -> dict[str, str]:
    sizes = [label for label in labels if label != NO_PROMPT]
    return {NO_PROMPT: CLEAR, **dict(zip(sizes, (*_HEAT, *repeat(_HEAT[-1], len(sizes))), strict=False))}


PROMPT_SIZES = _heated(CONCURRENT_PROMPT.values)
STEP_SIZES = _heated(STEP_BUCKETS)
