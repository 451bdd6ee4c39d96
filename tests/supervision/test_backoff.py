"""Delays before a restart."""

from __future__ import annotations

from prefillwatch.supervision.backoff import Backoff


def test_delays_double_up_to_five_seconds() -> None:
    backoff = Backoff()
    assert [backoff.delay_after(lived_s=0.0) for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_a_healthy_minute_begins_anew() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.delay_after(lived_s=1.0)
    assert backoff.delay_after(lived_s=59.9) == 3.2
    assert backoff.delay_after(lived_s=60.0) == 0.1
    assert backoff.delay_after(lived_s=0.0) == 0.2
