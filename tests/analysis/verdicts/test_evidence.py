"""What is remembered, and what follows from it alone."""

from __future__ import annotations

import pytest

from prefillwatch.analysis.tuning import DEFAULT
from prefillwatch.analysis.verdicts.evidence import EnginePage, PageLog
from prefillwatch.units import NS


def pages(count: int) -> PageLog:
    """One every second, the last at 10 s."""
    log = PageLog()
    for number in range(count):
        log.add(EnginePage((11 - count + number) * NS))
    return log


@pytest.mark.parametrize(("count", "silent"), [(3, False), (4, True)])
def test_four_pages_make_a_rhythm(count: int, silent: bool) -> None:
    assert pages(count).silent(10 * NS, 13 * NS, DEFAULT.verdicts) is silent


@pytest.mark.parametrize(("after_s", "silent"), [(1.55, False), (1.65, True)])
def test_a_page_is_due_after_one_and_a_half_of_the_usual_distance_and_a_little(after_s: float, silent: bool) -> None:
    assert pages(8).silent(10 * NS, round((10 + after_s) * NS), DEFAULT.verdicts) is silent


def test_a_page_that_came_meanwhile_was_not_missing() -> None:
    log = pages(8)
    log.add(EnginePage(11 * NS))
    assert not log.silent(10 * NS, 13 * NS, DEFAULT.verdicts)
