"""The rule that says what a stall is."""

from __future__ import annotations

import pytest

from prefillwatch.analysis.settings import StallRule


@pytest.mark.parametrize(
    ("baseline_s", "tokens", "least"),
    [
        (0.02, 1.0, 0.1),
        (0.05, 1.0, 0.2),
        (0.05, 3.0, 0.6),
        (0.4, 1.0, 1.0),
        (0.02, 100.0, 1.0),
        (None, 1.0, 1.0),
        (0.0, 1.0, 1.0),
    ],
    ids=[
        "a fast stream: long enough to feel",
        "a slower one: four times its pace",
        "by what the tokens take together",
        "the longest are stalls of any stream",
        "and whatever came with them",
        "a pace that is not known",
        "bursts show no pace",
    ],
)
def test_the_shortest_gap_that_is_a_stall(baseline_s: float | None, tokens: float, least: float) -> None:
    rule = StallRule()
    assert rule.least_seconds(baseline_s, tokens) == pytest.approx(least)
    assert rule.holds(least + 1e-9, baseline_s, tokens)
    assert not rule.holds(least - 1e-9, baseline_s, tokens)
