"""From steps and requests to the two pressures, over time."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from prefillwatch.analysis.pressure import PressureGauge, StepShare
from prefillwatch.analysis.settings import Slo
from prefillwatch.analysis.tuning import DEFAULT
from prefillwatch.units import NS

SLO = Slo(ttft=2.5, tpot=0.1, itl=0.2)
RULES = DEFAULT.pressure


class Server:
    """A second of it at a time; ``rate`` prompts of ``reading_s`` each, ``streams`` that decode at ``step_s``."""

    def __init__(self) -> None:
        self.gauge = PressureGauge(SLO)
        self.now_s = 0
        self.gauge.advance(0)

    def run(
        self,
        seconds: int,
        *,
        streams: int = 16,
        step_s: float = 0.02,
        prompt: StepShare | None = None,
        every: int = 1,
        rate: int = 2,
        reading_s: float = 0.05,
        queue_s: float = 0.0,
        held_up: float = 0.0,
    ) -> PressureGauge:
        for _ in range(seconds):
            for _ in range(round(1 / step_s) if streams else 0):
                self.gauge.step(StepShare(step_s, step_s, streams))
            if prompt is not None and self.now_s % every == 0:
                self.gauge.step(prompt)
            for _ in range(rate):
                self.gauge.sent()
                self.gauge.not_waiting()
                self.gauge.served(queue_s, reading_s, 2.5, held_up)
            self.now_s += 1
            self.gauge.advance(self.now_s * NS)
        return self.gauge

    @property
    def capacity(self) -> float:
        known = self.gauge.capacity
        assert known is not None
        return known.ratio

    @property
    def interference(self) -> float:
        known = self.gauge.interference
        assert known is not None
        return known.ratio


def test_nothing_is_said_before_the_first_requests_were_served() -> None:
    server = Server()
    assert server.run(3).capacity is None
    assert server.run(1).capacity is not None
    assert server.gauge.interference is not None


def test_an_idle_server_comes_down_and_stays_known() -> None:
    """Scaled in, and not forgotten: absence would stop an autoscaler."""
    server = Server()
    server.run(120, streams=64, step_s=0.1)
    loaded = server.capacity
    assert loaded == pytest.approx(1, rel=0.1)
    seen = [loaded]
    for _ in range(30):
        server.run(10, streams=0, rate=0)
        seen.append(server.capacity)
    assert all(after < before + 1e-9 for before, after in pairwise(seen))
    assert seen[-1] < 0.01
    for day in range(1, 30):
        server.gauge.advance(day * 86_400 * NS)
    assert server.capacity == pytest.approx(0, abs=1e-9)
    assert server.interference == pytest.approx(0, abs=1e-9)


def test_a_step_of_load_shows_within_half_a_minute() -> None:
    server = Server()
    server.run(150, rate=1, prompt=StepShare(0.12, 0.02, 1, 500), streams=1)
    before = server.capacity
    server.run(30, rate=5, prompt=StepShare(0.62, 0.02, 1, 2500), streams=1)
    assert server.gauge.load.reading == pytest.approx(0.12 + (0.62 - 0.12) * (1 - 1 / math.e), rel=0.05)
    assert server.capacity > 3 * before


def test_the_pace_of_an_empty_batch_is_drawn_from_batches_of_two_sizes() -> None:
    """Empty 10 ms, and 0.5 ms for each stream: 60 streams take 40 ms, a third of the room up to 100 ms."""
    server = Server()
    for _ in range(60):
        server.run(1, streams=20, step_s=0.02)
        server.run(1, streams=60, step_s=0.04)
    load = server.gauge.load
    assert load.empty_step_s == pytest.approx(0.01, rel=0.15)
    server.run(120, streams=60, step_s=0.04)
    known = server.gauge.capacity
    assert known is not None
    assert known.pace == pytest.approx(0.33, abs=0.03)


@pytest.mark.parametrize(("streams", "part"), [(1, 1.0), (2, 0.97), (9, 0.5), (60, 0.02), (600, 0.0)])
def test_of_batches_of_one_size_only_a_small_one_is_nearly_empty(streams: int, part: float) -> None:
    server = Server()
    server.run(30, streams=streams, step_s=0.04)
    assert server.gauge.load.empty_step_s == pytest.approx(part * 0.04, abs=0.001)


def test_full_steps_of_a_document_are_interference_and_hardly_capacity() -> None:
    """One document a minute freezes 16 streams for three steps of 0.8 s: more servers would not shorten one."""
    server = Server()
    for _ in range(10):
        for _ in range(3):
            server.gauge.step(StepShare(0.8, 0.02, 16, 2048, room=2048))
        server.run(60)
    assert server.interference > 2
    assert server.capacity < 0.4
    assert server.interference == pytest.approx((0.8 - 0.02) / (0.2 - 0.02), rel=0.5)


def test_the_advised_step_is_a_pressure_of_one() -> None:
    server = Server()
    server.run(300, prompt=StepShare(0.2, 0.02, 16, 512, room=512), every=2)
    assert server.interference == pytest.approx(1)


def test_rarer_long_steps_press_less_and_without_a_jump() -> None:
    seen = []
    for every in range(1, 40):
        server = Server()
        server.run(80, step_s=0.25, prompt=StepShare(0.8, 0.02, 1, 2048), every=every)
        seen.append(server.interference)
    assert seen[0] == pytest.approx(780 / 180, rel=0.02)
    assert all(before / after < 1.6 for before, after in pairwise(seen))
    assert seen[-1] < seen[0] / 2


def test_a_pause_is_no_pressure() -> None:
    """What a step took beyond what its prompts explain had another cause, and so had a long one without a prompt."""
    server = Server()
    server.run(300)
    before = server.capacity, server.interference
    server.gauge.step(StepShare(5.0, 0.02, 16))
    server.gauge.step(StepShare(5.0, 0.02, 16, 64, explained_s=0.01))
    server.run(1)
    assert server.capacity == pytest.approx(before[0], rel=0.05, abs=0.01)
    assert server.interference < before[1] + 0.1


def test_a_single_long_gap_is_the_mean_of_nothing() -> None:
    server = Server()
    server.run(4)
    server.gauge.step(StepShare(1.0, 0.02, 1, 2048))
    assert server.interference == pytest.approx(0.98 / 0.18 / 8, rel=0.05)


def test_a_clear_step_over_the_promise_is_no_interference() -> None:
    server = Server()
    server.run(300, step_s=0.25, prompt=StepShare(0.26, 0.25, 16, 100))
    assert server.interference == pytest.approx(0.01 / (0.5 * 0.2), rel=0.1)
    assert server.capacity > 1


def test_waiting_requests_press_while_they_wait() -> None:
    """Nobody has a first token any more, and twenty wait."""
    server = Server()
    server.run(120)
    assert server.capacity < 0.3
    for _ in range(20):
        server.gauge.sent()
    server.run(20, rate=0)
    assert server.capacity > 1
    for _ in range(20):
        server.gauge.not_waiting()
    server.run(300)
    assert server.capacity < 0.3


def test_a_wait_behind_one_longer_prompt_is_interference() -> None:
    alone, crowd = Server(), Server()
    alone.run(300, queue_s=2.0, held_up=1.0)
    crowd.run(300, queue_s=2.0)
    assert alone.interference == pytest.approx(RULES.tail * 2.0 / 2.45)
    assert crowd.interference == 0
    for _ in range(20):
        alone.gauge.sent(held_up=1.0)
    alone.run(20, rate=0)
    assert alone.capacity < 0.3


def test_a_prompt_that_nobody_reads_in_time_may_wait_a_quarter_of_its_promise() -> None:
    server = Server()
    server.run(60, reading_s=60.0)
    assert server.gauge.load.allowance_s == pytest.approx(0.25 * 2.5)


def test_half_of_the_worst_thousandth_is_half_of_its_ratio() -> None:
    """Fifty of a hundred thousand gaps were twice what the promise leaves."""
    server = Server()
    server.run(4, streams=0)
    for _ in range(999):
        server.gauge.step(StepShare(0.02, 0.02, 100))
    server.gauge.step(StepShare(0.38, 0.02, 50, 2048))
    server.gauge.step(StepShare(0.02, 0.02, 50))
    assert server.interference == pytest.approx(1, rel=0.01)


def test_long_gaps_are_forgotten_within_minutes() -> None:
    server = Server()
    server.run(4, streams=0)
    server.gauge.step(StepShare(0.38, 0.02, 8, 2048))
    assert server.interference == pytest.approx(2)
    server.gauge.advance((4 + 300) * NS)
    assert server.interference == pytest.approx(2 / math.e)
