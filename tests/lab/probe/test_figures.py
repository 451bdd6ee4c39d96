"""Figures of a run from its raw times."""

from __future__ import annotations

import pytest
from tests.lab.probe.timelines import answer, run_of, steady

from prefillwatch.analysis.settings import StallRule
from prefillwatch.lab.probe.figures import Spread, measure, victim_gaps

#: Reads every 20 ms, a freeze from 1,000 to 1,800 ms, and 20 ms again.
FROZEN = [*steady(0, 1000), *steady(1800, 2800)]
CALM = steady(0, 2800)


def test_gaps_that_overlap_the_time_from_the_sending_to_the_first_token_are_the_window() -> None:
    figures = measure(run_of(answer(-10, FROZEN), injected=[answer(990, [1795])]))
    assert figures.window.samples == 2  # the one that was running when the prompt was sent, and the freeze
    assert figures.window.max_seconds == pytest.approx(0.8)
    assert figures.overall.samples == len(FROZEN) - 1
    assert figures.clear.samples == figures.overall.samples - 2
    assert figures.clear.max_seconds == pytest.approx(0.02)
    assert figures.window_seconds == pytest.approx(0.805)


def test_a_gap_that_ends_when_the_window_begins_is_not_in_it() -> None:
    figures = measure(run_of(answer(-10, FROZEN), injected=[answer(1000, [1800])]))
    assert figures.window.samples == 1


def test_every_prompt_that_waits_keeps_the_window_open() -> None:
    both = [answer(990, [1795]), answer(990, [2195])]
    assert measure(run_of(answer(-10, FROZEN), injected=both)).window.samples == 22


def test_between_prompts_that_come_one_after_the_other_the_window_is_shut() -> None:
    apart = [answer(305, [335]), answer(1305, [1335])]
    figures = measure(run_of(answer(-10, CALM), injected=apart))
    assert figures.window.samples == 4  # 300–320 and 320–340, and the same a second later
    assert figures.window_seconds == pytest.approx(0.06)


def test_what_lies_between_two_answers_of_a_victim_is_no_gap_but_a_restart() -> None:
    two = [answer(-10, steady(0, 1000)), answer(1010, steady(1800, 2800))]
    figures = measure(run_of(two, injected=[answer(990, [1795])]))
    assert figures.window.max_seconds == pytest.approx(0.02)
    assert (figures.stalls, figures.restarts) == (0, 1)


def test_stalls_are_measured_against_the_victims_own_warm_up() -> None:
    slow = [*steady(1, 1051, 210), *steady(1800, 2850, 210)]
    run = run_of(answer(-10, FROZEN), answer(-10, slow), injected=[answer(1055, [1795])])
    figures = measure(run)
    assert (figures.stalls, figures.stalled_victims) == (1, 1), "750 ms is less than four times 210 ms"
    assert figures.stall_seconds == pytest.approx(0.78)


def test_a_second_is_a_stall_whatever_is_usual() -> None:
    slow = [*steady(0, 1000, 500), *steady(2100, 3100, 500)]
    assert measure(run_of(answer(-10, slow), injected=[answer(990, [2095])])).stalls == 1


def test_tokens_that_come_bunched_are_allowed_the_time_of_each() -> None:
    """Sixteen tokens after 320 ms are what sixteen steps take."""
    reads = [*steady(0, 1000), 1320, *steady(1340, 2800)]
    events = [1] * len(reads)
    events[reads.index(1320)] = 16
    figures = measure(run_of(answer(-10, reads, events=events), injected=[answer(990, [1319])]))
    assert figures.stalls == 0
    assert figures.worst_added_seconds == pytest.approx(0.0, abs=1e-6)


def test_the_rule_for_stalls_can_be_set() -> None:
    run = run_of(answer(-10, FROZEN), injected=[answer(990, [1795])])
    assert measure(run, StallRule(min_gap=0.9)).stalls == 0


def test_stalls_without_a_prompt_are_kept_apart() -> None:
    figures = measure(run_of(answer(-10, FROZEN), injected=[answer(2400, [2450])]))
    assert (figures.stalls, figures.stalls_outside) == (0, 1)


def test_added_time_is_the_sum_of_all_slower_beats_per_victim() -> None:
    beats = [*steady(0, 1000), 1060, 1120, 1180, *steady(1200, 2200)]
    run = run_of(answer(-10, beats), answer(-10, beats), injected=[answer(1000, [1180])])
    figures = measure(run)
    assert figures.added_seconds == pytest.approx(3 * 0.04)
    assert figures.worst_added_seconds == pytest.approx(0.04)
    assert figures.work_seconds == pytest.approx(0.12)


def test_the_work_of_a_prompt_that_was_not_taken_in_is_not_that_of_another() -> None:
    reads = [*steady(0, 1000), 1800, 2600]
    run = run_of(answer(-10, reads), injected=[answer(1000, [1800]), answer(1000, [])], ended_ms=2600)
    figures = measure(run)
    assert (figures.stalls, figures.taken_in) == (2, 1)
    assert figures.work_seconds == pytest.approx(0.78)


def test_a_prompt_without_a_first_token_keeps_the_window_open_to_its_end() -> None:
    refused = answer(990, [], status=400, closed_ns=1_100_000_000)
    figures = measure(run_of(answer(-10, CALM), injected=[refused]))
    assert figures.window_seconds == pytest.approx(0.11)
    assert figures.prompts[0].ttft_seconds is None
    assert figures.prompts[0].error == "HTTP 400"
    assert (figures.taken_in, figures.work_seconds) == (0, None)


def test_a_victim_that_used_its_tokens_up_is_silent() -> None:
    done = answer(-10, steady(0, 1000), complete=True, closed_ns=1_000_000_001)
    figures = measure(run_of(done, answer(-10, FROZEN), injected=[answer(990, [1795])]))
    assert figures.silent == 1


def test_nothing_streamed_gives_no_figures_and_no_error() -> None:
    figures = measure(run_of(answer(0, []), injected=[answer(990, [1795])], ended_ms=2000))
    assert figures.overall == Spread(0)
    assert figures.baseline_seconds is None
    assert figures.added_seconds == 0.0


def test_gaps_know_how_many_token_events_ended_them() -> None:
    gaps = victim_gaps(run_of(answer(0, [10, 30, 50], events=[1, 2, 1]), injected=[answer(0, [1])]))
    assert [(gap.seconds, gap.events) for gap in gaps] == [(0.02, 2), (0.02, 1)]
