"""Which gaps are stalls, while they last and when they end."""

from __future__ import annotations

import numpy as np
import pytest

from prefillwatch.analysis.delays import Stall
from prefillwatch.analysis.requests.request import Request
from prefillwatch.analysis.settings import StallRule
from prefillwatch.analysis.tokens.gaps import GapBook
from prefillwatch.analysis.tokens.pending import Gaps
from prefillwatch.analysis.verdicts.stalls import StallWatch, least_seconds_of
from prefillwatch.units import MS


class Watched:
    """One stream at 20 ms per token, and a watch on it."""

    def __init__(self, rule: StallRule | None = None, *, baseline: bool = True) -> None:
        self.book = GapBook()
        self.watch = StallWatch(rule or StallRule(), self.book)
        self.slot = self.book.open(0)
        self.request = Request(rid=1, endpoint="completions", received_ns=1, model=0)
        self.watch.begin(self.slot, self.request, 1)
        self.read(1000)
        if baseline:
            self.book.note_clear([self.slot] * 8, [0.020] * 8)

    def read(self, *at_ms: float, events: int = 1) -> list[Stall]:
        times = [round(at * MS) for at in at_ms]
        batch = self.book.tokens([self.slot] * len(times), times, [events] * len(times))
        gaps = Gaps(batch.slot, batch.model, batch.start_ns, batch.end_ns, batch.events, batch.slot >= 0)
        found, self.wrong = self.watch.ended(gaps, 0)
        return found

    def lasting(self, at_ms: float) -> list[Stall]:
        return self.watch.lasting(round(at_ms * MS), 0)


@pytest.mark.parametrize(
    ("gap_ms", "is_stall"), [(20, False), (79, False), (99, False), (101, True), (999, True), (1001, True)]
)
def test_long_in_itself_and_against_the_baseline(gap_ms: int, is_stall: bool) -> None:
    assert bool(Watched().read(1000 + gap_ms)) is is_stall


def test_four_times_the_baseline_is_needed_below_a_second() -> None:
    watched = Watched(baseline=False)
    watched.book.note_clear([watched.slot] * 8, [0.1] * 8)
    assert watched.read(1390) == []
    assert len(watched.read(1390 + 410)) == 1


def test_without_a_baseline_only_a_second_counts() -> None:
    watched = Watched(baseline=False)
    assert watched.read(1900) == []
    (stall,) = watched.read(1900 + 1000)
    assert stall.excess_ns == 1000 * MS


def test_excess_is_what_goes_beyond_the_tokens_it_brought() -> None:
    (stall,) = Watched().read(1500)
    assert stall.excess_ns == pytest.approx(480 * MS, rel=0.001)
    (stall,) = Watched().read(2600, events=30)
    assert stall.excess_ns == pytest.approx(1000 * MS, rel=0.001)


def test_sixteen_tokens_after_as_many_token_times_are_no_stall() -> None:
    assert Watched().read(1330, events=16) == []
    watched = Watched()
    watched.watch.returned(watched.request, watched.slot, 1330 * MS, events=1, chars=0, tokens=16)
    assert watched.read(1330) == []


def test_a_silence_that_tokens_on_their_way_belie_was_no_stall() -> None:
    watched = Watched()
    watched.read(1020)
    (stall,) = watched.lasting(1150)
    assert watched.read(1040, 1060, 1080) == []
    assert watched.wrong == [stall]
    assert watched.lasting(1150) == []


def test_a_silence_shows_while_it_lasts_and_is_the_same_stall_at_its_end() -> None:
    watched = Watched()
    assert watched.lasting(1090) == []
    (seen,) = watched.lasting(1200)
    assert seen.excess_ns == pytest.approx(180 * MS, rel=0.001)
    assert watched.lasting(5000) == [seen]
    (ended,) = watched.read(6000)
    assert ended is seen
    assert (seen.started_ns, seen.ended_ns) == (1000 * MS, 6000 * MS)
    assert watched.lasting(6050) == []


def test_an_open_one_that_ends_with_many_tokens_was_none() -> None:
    watched = Watched()
    (seen,) = watched.lasting(1200)
    assert watched.read(1330, events=16) == []
    assert watched.wrong == [seen]


def test_reads_right_after_it_are_kept_whether_in_the_same_batch_or_later() -> None:
    watched = Watched()
    (stall,) = watched.read(2000, 2001, 2002)
    watched.read(2003, 2004)
    watched.lasting(2400)
    watched.read(2420)
    assert [read.time_ns // MS for read in stall.after] == [2001, 2002, 2003, 2004]


def test_bursts_of_like_size_are_remembered() -> None:
    watched = Watched()
    watched.read(3000, events=60)
    (stall,) = watched.read(5000, events=55)
    assert (stall.events, stall.burst_before) == (55, 60)


def test_a_stream_that_left_has_no_open_stall() -> None:
    watched = Watched()
    (seen,) = watched.lasting(1200)
    assert watched.watch.leave(watched.slot) is seen
    watched.book.close(watched.slot)
    assert watched.lasting(1300) == []


def test_what_was_held_back_comes_within_three_tenths_of_a_second() -> None:
    (stall,) = Watched().read(2200, 2280, 2360, 2440, 2499, 2501)
    assert [read.time_ns // MS for read in stall.after] == [2280, 2360, 2440, 2499]


@pytest.mark.parametrize(("events", "held_back"), [(4, 0.0), (5, 19.0)])
def test_five_events_show_how_long_the_text_of_one_is(events: int, held_back: float) -> None:
    watched = Watched()
    watched.request.events, watched.request.chars = events, 4 * events
    watched.watch.returned(watched.request, watched.slot, 2200 * MS, 1, 80)
    (stall,) = watched.read(2200)
    assert stall.held_back == held_back


def test_the_rule_can_be_set() -> None:
    rule = StallRule(min_gap=0.05, factor=2.0, always=0.5)
    assert Watched(rule).read(1045) == []
    assert len(Watched(rule).read(1055)) == 1
    assert len(Watched(rule, baseline=False).read(1510)) == 1


def test_the_least_that_is_a_stall_is_the_same_for_many_baselines_at_once() -> None:
    rule = StallRule()
    baselines = np.array([0.0, 0.001, 0.024, 0.025, 0.026, 0.1, 0.249, 0.25, 0.26, 5.0])
    assert least_seconds_of(rule, baselines).tolist() == [rule.least_seconds(each) for each in baselines.tolist()]


def test_a_slow_stream_stalls_by_its_own_measure_among_quick_ones() -> None:
    """Eight streams at 20 ms per token and one at 200 ms: 300 ms stall the eight, 900 ms all."""
    book = GapBook()
    watch = StallWatch(StallRule(), book)
    slots = [book.open(0) for _ in range(9)]
    for slot in slots:
        watch.begin(slot, Request(rid=slot, endpoint="completions", received_ns=1, model=0), MS)
        book.note_clear([slot] * 8, [0.2 if slot == slots[-1] else 0.02] * 8)
    book.tokens(slots, [MS] * 9, [1] * 9)
    assert {stall.slot for stall in watch.lasting(301 * MS, 0)} == set(slots[:-1])
    assert {each.slot for each in watch.silences(301 * MS, 0) if each.frozen} == set(slots[:-1])
    assert {stall.slot for stall in watch.lasting(901 * MS, 0)} == set(slots)
    batch = book.tokens(slots, [901 * MS] * 9, [1] * 9)
    ended, _ = watch.ended(
        Gaps(batch.slot, batch.model, batch.start_ns, batch.end_ns, batch.events, batch.slot >= 0), 0
    )
    assert {stall.slot for stall in ended} == set(slots)
    batch = book.tokens(slots, [1201 * MS] * 9, [1] * 9)
    ended, _ = watch.ended(
        Gaps(batch.slot, batch.model, batch.start_ns, batch.end_ns, batch.events, batch.slot >= 0), 0
    )
    assert {stall.slot for stall in ended} == set(slots[:-1])
