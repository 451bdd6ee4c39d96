"""More replicas, or a smaller step? Which of the two the promises want, by a sidecar's two pressures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from prefillwatch.contract import limits
from prefillwatch.doctor.figures import Figures
from prefillwatch.doctor.finding import Finding, Number, Seen
from prefillwatch.doctor.remedies import budget_advice

CAPACITY_TITLE: Final = "There is more to do than the promises allow"
INTERFERENCE_TITLE: Final = "Prompts in steps break the promise on gaps"
#: Where nothing was learned that could be advised.
_SMALLER: Final = "a smaller step (--max-num-batched-tokens lower), or long prompts to replicas of their own"


def pressures(figures: Figures) -> Iterator[Finding]:
    """Nothing where they are not told: by another server, or before the first requests were served."""
    capacity, interference = figures.capacity_pressure, figures.interference_pressure
    if capacity is None or interference is None:
        return
    numbers: dict[str, Number] = {
        "capacity_pressure_ratio": capacity,
        "interference_pressure_ratio": interference,
        "advised_max_queued_tokens": figures.advised_queue,
    }
    yield _capacity(figures, capacity, numbers)
    yield _interference(figures, interference, numbers)


def _capacity(figures: Figures, ratio: float, numbers: dict[str, Number]) -> Finding:
    words = f"The load is {ratio:.2f} times what the promises allow (1 is just kept)."
    if ratio <= limits.PRESSURE:
        return Finding("capacity_pressure", CAPACITY_TITLE, Seen.NO, words, numbers)
    remedy = f"more replicas: at least {math.ceil(10 * ratio)} for every 10 that there are"
    if figures.advised_queue is not None:
        remedy += f"; until then --max-num-queued-tokens {figures.advised_queue} refuses what would come too late"
    return Finding("capacity_pressure", CAPACITY_TITLE, Seen.YES, words, numbers, remedy, "QueueSaturation")


def _interference(figures: Figures, ratio: float, numbers: dict[str, Number]) -> Finding:
    words = f"The worst of a thousand gaps, or waits behind one longer prompt, are {ratio:.2f} times what is promised."
    if ratio <= limits.PRESSURE:
        return Finding("interference_pressure", INTERFERENCE_TITLE, Seen.NO, words, numbers)
    words += " More replicas would make that rarer and no better."
    remedy = budget_advice(figures) or _SMALLER
    return Finding(
        "interference_pressure", INTERFERENCE_TITLE, Seen.YES, words, numbers, remedy, "InterferencePressure"
    )
