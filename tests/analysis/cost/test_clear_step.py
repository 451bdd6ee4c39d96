"""What a step takes that carries no prompt."""

import pytest

from prefillwatch.analysis.cost.clear_step import ClearStep
from prefillwatch.units import MS


def learn(clear: ClearStep, *durations_ms: float, streams: int = 6, waiting: bool = False) -> ClearStep:
    for duration in durations_ms:
        clear.observe(round(duration * MS), streams, waiting=waiting)
    return clear


def test_nothing_is_known_before_enough_steps_were_seen() -> None:
    clear = learn(ClearStep(), *[10] * 7)
    assert (clear.expect_ns(6), clear.long_ns(6)) == (0, 0)
    learn(clear, 10)
    assert clear.expect_ns(6) == 10 * MS


def test_single_long_steps_do_not_move_the_median() -> None:
    clear = learn(ClearStep(), *[10, 10, 10, 300] * 10)
    assert clear.expect_ns(6) == 10 * MS


def test_a_batch_that_grows_is_harmless() -> None:
    clear = learn(ClearStep(), *[10] * 40)
    assert clear.long_ns(6) == round(11.5 * MS)


def test_the_more_steps_scatter_the_longer_a_long_one_must_be() -> None:
    calm, restless = learn(ClearStep(), *[10, 10.1] * 20), learn(ClearStep(), *[8, 10, 12] * 14)
    assert calm.long_ns(6) < 12 * MS < restless.long_ns(6)


def test_more_streams_take_longer_steps() -> None:
    clear = learn(learn(ClearStep(), *[10] * 20, streams=2), *[30] * 20, streams=200)
    assert clear.expect_ns(3) == 10 * MS
    assert clear.expect_ns(150) == 30 * MS
    assert clear.expect_ns(100_000) == 30 * MS


def test_it_follows_a_growing_context() -> None:
    clear = learn(ClearStep(), *[10] * 200)
    assert learn(clear, *[14] * 64).expect_ns(6) == 14 * MS


def test_where_somebody_always_waits_the_quicker_steps_stand_in() -> None:
    clear = learn(ClearStep(), *[10, 11, 200, 300, 10, 250] * 10, waiting=True)
    assert clear.expect_ns(6) in (10 * MS, round(10.5 * MS), 11 * MS)
    assert clear.long_ns(6) < 200 * MS


def test_steps_known_to_be_clear_count_for_more_than_others() -> None:
    clear = learn(ClearStep(), *[3] * 100, waiting=True)
    assert learn(clear, *[10] * 8).expect_ns(6) == 10 * MS


@pytest.mark.parametrize(("newer", "expected"), [(28, 20), (40, 30)])
def test_the_last_sixty_four_steps_count(newer: int, expected: int) -> None:
    clear = learn(ClearStep(), *[20] * 200)
    assert learn(clear, *[30] * newer).expect_ns(6) == expected * MS


def test_a_long_step_is_five_standard_deviations_from_the_median() -> None:
    """Of the steps a third is 1 ms shorter than 20 ms and a third 1 ms longer: a deviation of 1.48 ms."""
    clear = learn(ClearStep(), *[19, 20, 21] * 20)
    assert 27 * MS < clear.long_ns(6) < 28 * MS


@pytest.mark.parametrize(("quick", "expected"), [(6, 20), (4, 100)])
def test_of_all_steps_a_quarter_must_be_quick(quick: int, expected: int) -> None:
    clear = learn(ClearStep(), *[20] * quick, *[100] * (20 - quick), waiting=True)
    assert clear.expect_ns(6) == expected * MS


@pytest.mark.parametrize(("slower", "expected"), [(38, 38), (42, 20)])
def test_steps_up_to_twice_the_quickest_are_quick_too(slower: int, expected: int) -> None:
    clear = learn(ClearStep(), *[20] * 6, *[slower] * 14, waiting=True)
    assert clear.expect_ns(6) == expected * MS
