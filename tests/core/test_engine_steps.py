"""Gaps seen at three places, and what lies between. Times in milliseconds."""

from __future__ import annotations

import numpy as np
import pytest

from prefillwatch.analysis.tokens.windows import SlidingWindows, quantile_of_all
from prefillwatch.core.engine_steps import EngineSteps
from prefillwatch.engine.step_report import StepReport
from prefillwatch.units import MS


class Story:
    def __init__(self) -> None:
        self.steps = EngineSteps((10,))
        self.wire = SlidingWindows((10,))

    def step(self, end: float, taken: float, gap: float, link: int = 1, requests: int = 4) -> None:
        report = StepReport(0, round(end * MS), round(taken * MS), round(gap * MS), gaps=[(gap / 1e3, requests)])
        self.steps.take(link, report, round(taken * MS))

    def at_wire(self, *gaps: float) -> None:
        self.wire.add_many(np.array(gaps) / 1e3, 0)

    def parts(self) -> list[float]:
        return [round(value * 1e3) for value in self.steps.parts([self.wire], 10).values()]


def test_a_long_step_is_the_engines_part() -> None:
    story = Story()
    story.step(1000, 1001, 10)
    story.step(1500, 1501, 500)
    story.at_wire(10, 503)
    assert story.parts() == [500, 0, 3]


def test_an_api_server_that_takes_outputs_in_late_is_the_frontends_part() -> None:
    story = Story()
    story.step(1000, 1001, 10)
    story.step(1010, 1211, 10)
    story.at_wire(10, 210)
    assert story.parts() == [10, 200, 0]


def test_what_the_wire_adds_is_the_networks_part() -> None:
    story = Story()
    story.step(1000, 1001, 10)
    story.step(1010, 1011, 10)
    story.at_wire(10, 90)
    assert story.parts() == [10, 0, 80]


def test_lateness_of_one_api_server_is_not_that_of_another() -> None:
    story = Story()
    story.step(1000, 1001, 10, link=1)
    story.step(1010, 1211, 10, link=2)  # its first: late from the beginning
    story.step(1020, 1221, 10, link=2)
    story.at_wire(10)
    assert story.parts() == [10, 0, 0]


def test_the_parts_add_up_to_the_wire_even_where_it_saw_less() -> None:
    story = Story()
    story.step(1000, 1001, 500)
    story.at_wire(10)
    assert story.parts() == [10, 0, 0]


def test_without_one_of_the_places_there_are_no_parts() -> None:
    story = Story()
    assert story.parts() == []
    story.step(1000, 1001, 10)
    assert story.parts() == []


def test_steps_are_counted_once_and_strange_figures_do_no_harm() -> None:
    steps = EngineSteps((10,))
    steps.take(1, StepReport(0, 1, 1), 1)
    steps.take(2, StepReport(0, 1, 1, is_step=False), 1)
    steps.take(1, StepReport(0, 1, 1, gaps=[(float("nan"), 3), (0.1, -4), (0.1, 10**12)]), 1)
    assert steps.steps == 2


@pytest.mark.parametrize("parts", [[[1.0, 2.0, 3.0], [10.0]], [[], [5.0]], [[4.0, 4.0], [1.0], [9.0, 0.5]]])
def test_the_quantile_of_several_windows_is_that_of_all_values(parts: list[list[float]]) -> None:
    windows = []
    for values in parts:
        window = SlidingWindows((10,))
        window.add_many(values, 0)
        windows.append(window)
    together = SlidingWindows((10,))
    together.add_many([value for values in parts for value in values], 0)
    for q in (0.1, 0.5, 0.9, 0.99):
        assert quantile_of_all(windows, q, 10) == together.quantile(q, 10)


def test_the_quantile_of_nothing() -> None:
    assert quantile_of_all([], 0.5, 10) is None
    assert quantile_of_all([SlidingWindows((10,))], 0.5, 10) is None
