"""The descriptor that tells when a moment has come."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator

import pytest

from prefillwatch.relay.alarm import NEVER, Alarm

MS = 1_000_000


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    alarm = Alarm()
    yield alarm
    alarm.close()


def rings(alarm: Alarm, seconds: float) -> bool:
    """Whether it does within that time."""
    return bool(select.select([alarm.fd], [], [], seconds)[0])


def test_it_rings_at_its_moment_and_not_before(alarm: Alarm) -> None:
    due = time.monotonic_ns() + 20 * MS
    alarm.set(due)
    assert rings(alarm, 5)
    assert time.monotonic_ns() >= due


def test_a_moment_that_has_passed_is_now(alarm: Alarm) -> None:
    alarm.set(time.monotonic_ns() - 1)
    assert rings(alarm, 5)


def test_another_moment_takes_the_place_of_the_one_before(alarm: Alarm) -> None:
    alarm.set(time.monotonic_ns())
    assert rings(alarm, 5)
    alarm.set(time.monotonic_ns() + 3600 * 1000 * MS)
    assert not rings(alarm, 0)
    alarm.set(time.monotonic_ns())
    assert rings(alarm, 5)
    alarm.set(NEVER)
    assert not rings(alarm, 0)


def test_each_moment_is_told_once_to_who_watches_edges(alarm: Alarm) -> None:
    with select.epoll() as epoll:
        epoll.register(alarm.fd, select.EPOLLIN | select.EPOLLET)
        for _ in range(3):
            alarm.set(time.monotonic_ns())
            assert epoll.poll(5) == [(alarm.fd, select.EPOLLIN)]
            assert epoll.poll(0) == []


def test_no_program_that_is_started_gets_it(alarm: Alarm) -> None:
    assert not os.get_inheritable(alarm.fd)
