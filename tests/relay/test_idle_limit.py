"""A server's limit for idle connections, as it shows."""

from __future__ import annotations

import pytest

from prefillwatch.relay.idle_limit import IdleLimit
from prefillwatch.units import NS

INFINITE = float("inf")


def after(*closings: tuple[float, float]) -> float:
    """What is safe after connections were closed: (when, how long they had been idle)."""
    limit = IdleLimit()
    for at_s, age_s in closings:
        limit.closed(int(age_s * NS), int(at_s * NS))
    return limit.safe_s(int(closings[-1][0] * NS))


def test_connections_closed_at_one_age_again_and_again_show_the_limit() -> None:
    assert after((10, 2.0), (13, 2.02), (19, 2.1)) == pytest.approx(1.6)


@pytest.mark.parametrize(
    "closings",
    [
        [(10, 2.0), (13, 2.0)],  # too few
        [(10, 2.0), (13, 1.2), (19, 2.0)],  # of different ages
        [(10, 2.0), (10.01, 2.0), (10.02, 2.0)],  # a server that is restarted
        [(10, 0.1), (13, 0.1)],  # too few that were not kept
        [(10, 0.1), (10.01, 0.1), (10.02, 0.1)],  # the same restart, seen on young connections
        [(10, 0.1), (13, 0.1), (80, 0.1)],  # restarts, one a minute
    ],
)
def test_others_show_nothing(closings: list[tuple[float, float]]) -> None:
    assert after(*closings) == INFINITE


def test_a_server_that_keeps_none_shows_it_whatever_else_it_closes() -> None:
    assert after((10, 0.001), (13, 0.2), (14, 5.0), (19, 0.1)) == 0.0


def test_a_limit_is_not_believed_for_ever() -> None:
    limit = IdleLimit()
    for at_s in (10, 13, 19):
        limit.closed(2 * NS, at_s * NS)
    assert limit.safe_s(600 * NS) == pytest.approx(1.6)
    assert limit.safe_s(620 * NS) == INFINITE
