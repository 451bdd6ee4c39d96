"""How near to the truth what was learned is."""

from __future__ import annotations

from tests.simulation.learned import Learned, Told, summed_up


def test_right_is_what_was_told_and_is_near() -> None:
    runs = [Learned(clear=1.0, cost=1.1), Learned(clear=1.3, cost=None), Learned(clear=0.9, cost=0.5)]
    clear, base, cost, *_ = summed_up(runs)
    assert (clear, base, cost) == (Told(3, 3, 2), Told(3, 0, 0), Told(3, 2, 1))
