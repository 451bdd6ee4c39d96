"""Relays that serve, are mute, come back, as told second by second; and what is made of it."""

from __future__ import annotations

import pytest

from prefillwatch.relay.supervisor_line import Pulse
from prefillwatch.supervision.relay_watch import MUTE_AFTER, SETTLED_AFTER, START_LIMIT, RelayState, RelayWatch
from prefillwatch.supervision.wellbeing import LONG, readiness, unwell

ALIVE = Pulse()


def serving(limit: int = 10) -> RelayWatch:
    """A relay that has served for long."""
    watch = RelayWatch("relay 0", limit)
    watch.started()
    for _ in range(SETTLED_AFTER + 1):
        second(watch)
    watch.pulsed(ALIVE)
    return watch


def second(watch: RelayWatch, pulse: Pulse | None = ALIVE) -> bool:
    if pulse is not None:
        watch.pulsed(pulse)
    return watch.tick()


def silence(watch: RelayWatch, seconds: int) -> list[bool]:
    return [second(watch, None) for _ in range(seconds)]


def test_a_relay_serves_from_its_first_sign_of_life() -> None:
    watch = RelayWatch("relay 0", 10)
    assert watch.state is RelayState.AWAY
    watch.started()
    assert watch.state is RelayState.STARTING
    watch.pulsed(Pulse())
    assert watch.state is RelayState.SERVING
    assert watch.words() == ""


def test_a_mute_one_is_noticed_and_killed() -> None:
    watch = serving(limit=10)
    killed = silence(watch, MUTE_AFTER - 1)
    assert watch.state is RelayState.SERVING
    killed += silence(watch, 1)
    assert watch.state is RelayState.MUTE
    assert watch.words() == f"relay 0 is mute: no sign of life for {MUTE_AFTER} s"
    killed += silence(watch, 10 - MUTE_AFTER)
    assert killed == [False] * 9 + [True]


def test_one_that_speaks_again_is_spared() -> None:
    watch = serving(limit=10)
    silence(watch, 9)
    assert second(watch) is False
    assert watch.state is RelayState.SERVING
    assert not any(silence(watch, 8))


def test_without_a_limit_it_may_stand_still_for_ever() -> None:
    watch = serving(limit=0)
    assert not any(silence(watch, 1000))
    assert watch.state is RelayState.MUTE


def test_a_start_may_take_longer_than_a_silence() -> None:
    watch = RelayWatch("relay 0", 10)
    watch.started()
    assert silence(watch, START_LIMIT) == [False] * (START_LIMIT - 1) + [True]


def test_what_was_said_before_the_end_is_forgotten() -> None:
    watch = serving()
    watch.ended()
    watch.pulsed(Pulse())
    assert watch.state is RelayState.AWAY


def test_one_that_cannot_accept_is_not_ready_and_not_killed() -> None:
    watch = serving(limit=10)
    assert not any(second(watch, Pulse(accepting=False)) for _ in range(60))
    assert watch.state is RelayState.REFUSING
    assert readiness(False, [watch], True, "") == (False, watch.words())
    assert unwell([watch]) == ""  # another start would cut the answers that run


@pytest.mark.parametrize(
    ("draining", "up", "expected"),
    [
        (False, True, (True, "of upstream")),
        (False, False, (False, "of upstream")),
        (False, None, (False, "of upstream")),
        (True, True, (False, "draining: no new requests are accepted")),
    ],
)
def test_readiness_is_of_upstream_where_relays_serve(
    draining: bool, up: bool | None, expected: tuple[bool, str]
) -> None:
    assert readiness(draining, [serving(), serving()], up, "of upstream") == expected


def test_one_of_several_that_does_not_serve_is_named() -> None:
    away = serving()
    away.ended()
    assert readiness(False, [serving(), away], True, "") == (False, "relay 0 ended and is started again")


def test_long_trouble_is_said_and_a_short_one_is_not() -> None:
    watch = serving(limit=0)
    silence(watch, MUTE_AFTER - 1 + LONG - 1)
    assert unwell([watch]) == ""
    silence(watch, 1)
    assert unwell([watch]) == f"relay 0 has not served for {LONG} s"


def test_lives_that_never_last_add_up() -> None:
    watch = serving()
    for _ in range(LONG // 3 + 1):
        watch.ended()
        silence(watch, 1)
        watch.started()
        second(watch)
        second(watch)
    assert unwell([watch])
    for _ in range(SETTLED_AFTER):
        second(watch)
    assert unwell([watch]) == ""
