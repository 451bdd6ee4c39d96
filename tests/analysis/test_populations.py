"""When it is said whether a prompt was in service during a gap. Times in milliseconds."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from prefillwatch.analysis.arrays import FloatArray, IntArray
from prefillwatch.analysis.engines import Engines
from prefillwatch.analysis.figures import Figures
from prefillwatch.analysis.populations import GapPopulations
from prefillwatch.analysis.requests import PromptBuckets
from prefillwatch.analysis.tokens import GapBook, Gaps
from prefillwatch.units import MS


class Judged:
    """Takes what is said of gaps."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def gaps_judged(self, model: int, seconds: FloatArray, *_: Any) -> None:
        self.seconds += seconds.tolist()


@pytest.mark.parametrize(("after_ms", "said"), [(240, []), (260, [0.02])])
def test_a_gap_waits_a_quarter_of_a_second_for_its_step_and_no_longer(after_ms: int, said: list[float]) -> None:
    judged = Judged()
    populations = GapPopulations(
        Engines(),
        GapBook(),
        PromptBuckets(),
        cast("Figures", judged),
        lambda ends_ns: np.zeros(len(ends_ns), np.bool_),
        lambda _: None,
        1 << 60,
    )

    def one(value: int) -> IntArray:
        return np.array([value], np.int64)

    populations.add(Gaps(one(0), one(0), one(980 * MS), one(1000 * MS), one(1), np.array([False])))
    populations.advance((1000 + after_ms) * MS)
    assert judged.seconds == said
