"""How near, how late and how alike things have to be to count as facts of a case. Times in milliseconds.

A stream at 20 ms per token stalls from 100,000 to 101,000, at an engine of which nothing has been learned.
"""

from __future__ import annotations

from typing import Any

import pytest

from prefillwatch.analysis.cost import Costs, StepLaw
from prefillwatch.analysis.delays import Stall
from prefillwatch.analysis.engines import Engines
from prefillwatch.analysis.requests import Request
from prefillwatch.analysis.settings import StallRule
from prefillwatch.analysis.steps import Step
from prefillwatch.analysis.tokens import GapBook, StreamIntervals
from prefillwatch.analysis.verdicts.case import CaseBuilder
from prefillwatch.analysis.verdicts.evidence import EnginePage, EvidenceLog
from prefillwatch.analysis.verdicts.stalls import StallWatch
from prefillwatch.analysis.verdicts.verdict import Case
from prefillwatch.units import MS

SMALLEST = 128
START, END = 100_000, 101_000


class Scene:
    def __init__(self) -> None:
        self.evidence = EvidenceLog()
        engines = Engines()
        costs = Costs(engines.timeline.clear, StepLaw, lambda start_ns, end_ns: (StepLaw(), 0), SMALLEST)
        watch = StallWatch(StallRule(), GapBook())
        self.builder = CaseBuilder(watch, engines, self.evidence, costs, StreamIntervals(), SMALLEST)
        self.stall = self.stalled(START, END)

    def stalled(self, start: float, end: float) -> Stall:
        request = Request(1, "chat", 1, 0, sent_ns=1, first_ns=2, prompt_tokens=500)
        return Stall(
            request=request,
            model=0,
            started_ns=round(start * MS),
            ended_ns=round(end * MS),
            baseline_ns=20 * MS,
            excess_ns=(end - start - 20) * MS,
            decoding=1,
        )

    def case(self) -> Case:
        self.builder.measure(self.stall, self.stall.ended_ns)
        return self.builder.case([self.stall], self.stall.ended_ns)[0]

    def page(self, at: float, **facts: Any) -> None:
        self.evidence.pages.add(EnginePage(round(at * MS), **facts))

    def steps(self, *ends: float) -> None:
        self.evidence.steps.add([Step(0, round(end * MS), 1) for end in ends])


@pytest.mark.parametrize(
    ("at", "counts"), [(START + 18, False), (START + 22, True), (END - 22, True), (END - 18, False)]
)
def test_an_answer_within_twenty_milliseconds_of_either_end_was_not_in_the_midst(at: float, counts: bool) -> None:
    scene = Scene()
    scene.page(at)
    assert scene.case().answered_meanwhile is counts


@pytest.mark.parametrize(("away", "counts"), [(1450, True), (1550, False)])
def test_pages_a_second_and_a_half_away_say_whether_others_use_the_server(away: float, counts: bool) -> None:
    for at in (START - away, END + away):
        scene = Scene()
        scene.page(at, running=5, ours_at_most=3)
        assert scene.case().more_running is counts


@pytest.mark.parametrize(("away", "near"), [(1450, True), (1550, False)])
def test_what_was_lost_a_second_and_a_half_away_may_have_belonged_to_it(away: float, near: bool) -> None:
    scene = Scene()
    scene.evidence.holes.add(round((END + away) * MS), round((END + away + 10) * MS), 0.01)
    assert scene.case().hole_near is near
    assert not scene.case().records_lost


@pytest.mark.parametrize(("ago", "departed"), [(19_500, True), (20_500, False)])
def test_a_server_reads_on_for_twenty_seconds_at_most(ago: float, departed: bool) -> None:
    scene = Scene()
    left = Request(2, "chat", 1, 0, sent_ns=1, prompt_tokens=100_000, abandoned=True)
    scene.evidence.requests.sent(left)
    scene.evidence.requests.over(left, round((START - ago) * MS))
    assert scene.case().departed is departed


@pytest.mark.parametrize(("apart", "waits"), [(29, False), (31, True)])
def test_two_steps_up_to_one_and_a_half_gaps_apart_have_no_prompt_between_them(apart: float, waits: bool) -> None:
    """An answer that is not streamed, sent long before: whether the engine had gone on since shows who reads it."""
    scene = Scene()
    scene.evidence.requests.sent(
        Request(2, "chat", 1, 0, streaming=False, sent_ns=(START - 5000) * MS, prompt_tokens=9000)
    )
    scene.steps(START - 1000, START - 1000 + apart)
    assert (scene.case().prefill_tokens > 0) is waits


@pytest.mark.parametrize(("apart", "tokens"), [(58, 500), (62, 0)])
def test_streams_that_come_back_in_one_step_are_read_within_sixty_milliseconds(apart: float, tokens: int) -> None:
    scene = Scene()
    scene.builder.note_left_out(scene.stalled(START - 300, END - apart))
    assert scene.case().recomputed_tokens == tokens
