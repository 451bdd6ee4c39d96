"""What becomes of what is to be sent, while the other end takes it, refuses it, or is away. Mostly without a thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from tests.kit.eventually import PATIENCE_S

from prefillwatch.observer.otlp.channel import MOST_TRIES, Channel, SendError


class End:
    """The other end."""

    def __init__(self) -> None:
        self.up = True
        self.taken: list[list[int]] = []
        self.connected = 0

    def connect(self) -> End:
        self.connected += 1
        return self

    def __call__(self, items: Sequence[int]) -> None:
        if not self.up:
            raise SendError("refused")
        self.taken.append(list(items))


@pytest.fixture
def end() -> End:
    return End()


@pytest.fixture
def channel(end: End) -> Channel[int]:
    return Channel("figures", "http://there", end.connect, most=3, pause_s=PATIENCE_S)


def test_what_waits_goes_together_and_in_order(end: End, channel: Channel[int]) -> None:
    channel.offer(1)
    channel.offer(2)
    assert channel.turn()
    channel.offer(3)
    assert channel.turn()
    assert end.taken == [[1, 2], [3]]
    assert (channel.succeeded, channel.failed, channel.dropped, end.connected) == (2, 0, 0, 1)


def test_the_oldest_goes_when_too_much_waits(end: End, channel: Channel[int]) -> None:
    for number in range(5):
        channel.offer(number)
    channel.turn()
    assert end.taken == [[2, 3, 4]]
    assert channel.dropped == 2


def test_what_did_not_get_through_is_sent_again_before_what_came_since(end: End, channel: Channel[int]) -> None:
    end.up = False
    channel.offer(1)
    assert not channel.turn()
    channel.offer(2)
    end.up = True
    assert channel.turn()
    assert end.taken == [[1, 2]]
    assert (channel.succeeded, channel.failed, channel.dropped) == (1, 1, 0)


def test_a_dead_end_costs_neither_memory_nor_tries_without_bound(end: End, channel: Channel[int]) -> None:
    end.up = False
    channel.offer(0)
    for number in range(1, 20):
        assert not channel.turn()
        channel.offer(number)
    assert channel.failed == 19
    end.up = True
    assert channel.turn()
    assert end.taken == [[17, 18, 19]]
    assert channel.dropped == 17


def test_what_is_never_taken_is_given_up_and_what_came_later_is_not(end: End, channel: Channel[int]) -> None:
    end.up = False
    channel.offer(1)
    for _ in range(MOST_TRIES - 1):
        channel.turn()
    assert channel.dropped == 0
    channel.offer(2)
    channel.turn()
    assert channel.dropped == 1
    end.up = True
    channel.turn()
    assert end.taken == [[2]]


def test_the_log_has_a_line_when_it_changes_and_no_other(
    end: End, channel: Channel[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for up in (True, True, False, False, False, True, True):
        end.up = up
        channel.offer(1)
        channel.turn()
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("INFO", "figures get to http://there"),
        ("WARNING", "figures do not get to http://there: refused"),
        ("INFO", "figures get to http://there again"),
    ]


def test_whoever_offers_does_not_wait_and_closing_waits_for_what_is_left(end: End) -> None:
    go = threading.Event()

    def slow(items: Sequence[int]) -> None:
        go.wait(PATIENCE_S)
        end(items)

    channel = Channel("figures", "http://there", lambda: slow, most=3, pause_s=PATIENCE_S)
    channel.start()
    channel.offer(1)
    channel.offer(2)
    go.set()
    channel.close(PATIENCE_S)
    assert [number for items in end.taken for number in items] == [1, 2]


def test_closing_does_not_wait_for_one_that_does_not_come_back() -> None:
    go, asked = threading.Event(), threading.Event()

    def never(_: Sequence[int]) -> None:
        asked.set()
        go.wait(PATIENCE_S)

    channel = Channel("figures", "http://there", lambda: never, most=3, pause_s=PATIENCE_S)
    channel.start()
    channel.offer(1)
    assert asked.wait(PATIENCE_S)
    channel.close(0.01)
    assert channel.succeeded == 0
    go.set()
