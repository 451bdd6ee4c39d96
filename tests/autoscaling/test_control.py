"""The autoscaler does what Kubernetes documents of its own."""

from __future__ import annotations

import pytest
from tests.autoscaling.control import Autoscaler, Behavior, Limits, averaged, proportional

AT_ONCE = Limits(share=10.0, replicas=100, period=15.0, window=0.0)
FREE = Behavior(up=AT_ONCE, down=AT_ONCE, fewest=1, most=50)


def after(behavior: Behavior, replicas: int, wishes: list[int]) -> list[int]:
    """Replicas after each wish, one every fifteen seconds."""
    autoscaler, had = Autoscaler(behavior), []
    for number, wish in enumerate(wishes):
        replicas = autoscaler.decide(15.0 * number, replicas, wish)
        had.append(replicas)
    return had


@pytest.mark.parametrize(
    ("value", "replicas"), [(1.0, 4), (1.09, 4), (0.91, 4), (1.2, 5), (2.0, 8), (0.5, 2), (0.8, 4), (0.0, 0)]
)
def test_as_many_times_as_many_as_the_signal_is_of_its_target_unless_that_is_near(value: float, replicas: int) -> None:
    assert proportional(4, value, 1.0) == replicas


@pytest.mark.parametrize(("total", "replicas"), [(20, 4), (21, 4), (23, 5), (40, 8), (0, 0), (1, 1)])
def test_a_trigger_of_keda_is_a_total_and_its_threshold_is_for_each_replica(total: int, replicas: int) -> None:
    assert averaged(4, total, 5.0) == replicas


def test_without_limits_a_wish_is_what_happens_within_the_fewest_and_the_most() -> None:
    assert after(FREE, 4, [6, 3, 90, 0]) == [6, 3, 50, 1]


def test_up_waits_until_nothing_in_its_window_spoke_against_it() -> None:
    patient = Behavior(Limits(10.0, 100, 15.0, window=30.0), AT_ONCE, 1, 50)
    assert after(patient, 4, [4, 8, 6, 6, 8]) == [4, 4, 4, 6, 6]


def test_down_waits_for_as_long_as_anything_in_its_window_asked_for_more() -> None:
    patient = Behavior(AT_ONCE, Limits(10.0, 100, 15.0, window=60.0), 1, 50)
    assert after(patient, 4, [8, 2, 5, 2, 2, 2, 2, 2]) == [8, 8, 8, 8, 8, 5, 5, 2]


def test_up_is_limited_to_the_larger_of_a_share_and_a_number_in_each_period() -> None:
    limited = Behavior(Limits(share=1.0, replicas=4, period=60.0, window=0.0), AT_ONCE, 1, 50)
    assert after(limited, 2, [40] * 6) == [6, 6, 6, 6, 6, 12]


def test_down_is_limited_as_well() -> None:
    limited = Behavior(AT_ONCE, Limits(share=0.0, replicas=1, period=30.0, window=0.0), 1, 50)
    assert after(limited, 5, [1] * 7) == [4, 4, 4, 3, 3, 3, 2]
