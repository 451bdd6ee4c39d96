"""When it is said whether a prompt was in service during a gap, and which gaps make the baselines. Milliseconds."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from prefillwatch.analysis.arrays import FloatArray
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

    def gaps_final(self, *_: Any) -> None:
        pass


def books(judged: Judged) -> tuple[GapPopulations, GapBook]:
    book = GapBook()
    populations = GapPopulations(
        Engines(),
        book,
        PromptBuckets(),
        cast("Figures", judged),
        lambda ends_ns: np.zeros(len(ends_ns), np.bool_),
        lambda _: None,
        1 << 60,
    )
    return populations, book


def gaps(slot: int, length_ms: float, *ends_ms: float) -> Gaps:
    ends = np.array([round(end * MS) for end in ends_ms], np.int64)
    ones = np.ones(len(ends), np.int64)
    return Gaps(slot * ones, 0 * ones, ends - round(length_ms * MS), ends, ones, ones.astype(np.bool_))


@pytest.mark.parametrize(("after_ms", "said"), [(240, []), (260, [0.02])])
def test_a_gap_waits_a_quarter_of_a_second_for_its_step_and_no_longer(after_ms: int, said: list[float]) -> None:
    judged = Judged()
    populations, _ = books(judged)
    populations.add(gaps(0, 20, 1000))
    populations.advance((1000 + after_ms) * MS)
    assert judged.seconds == said


@pytest.mark.parametrize(("after_s", "baseline"), [(19.5, 0.02), (20.5, 0.2)])
def test_slow_gaps_that_nobody_causes_are_the_baseline_after_twenty_seconds(after_s: float, baseline: float) -> None:
    populations, book = books(Judged())
    slot = book.open(0)
    book.tokens([slot], [500 * MS], [1])
    book.note_clear([slot] * 32, [0.02] * 32)
    populations.add(gaps(slot, 200, 1000))
    populations.advance(2000 * MS)
    last_ms = 1000 + after_s * 1000
    populations.add(gaps(slot, 200, *[last_ms - 200 * back for back in reversed(range(40))]))
    populations.advance(round((last_ms + 1000) * MS))
    assert book.own_baselines(np.array([slot]))[0] == pytest.approx(baseline)
