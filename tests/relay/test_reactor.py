"""The loop: order, time, and what survives a fault."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from prefillwatch.relay.deadlines import Deadlines
from prefillwatch.relay.reactor import EDGES, Reactor, monotonic_ns

PATIENCE_NS = 5 * 10**9


class Crashes(list[tuple[Any, Exception]]):
    def __call__(self, callback: Any, error: Exception) -> None:
        self.append((callback, error))


@pytest.fixture
def crashes() -> Crashes:
    return Crashes()


@pytest.fixture
def reactor(crashes: Crashes) -> Iterator[Reactor]:
    reactor = Reactor(crashes)
    yield reactor
    reactor.release()


def run(reactor: Reactor, *, seconds: float = 0.05) -> None:
    """Run for a while."""
    reactor.call_later(seconds, reactor.stop)
    reactor.run()
    reactor._stopped = False


def run_until(reactor: Reactor, fact: Callable[[], bool]) -> None:
    """Run until it is so; the machine may stand still meanwhile."""
    end = monotonic_ns() + PATIENCE_NS

    def look() -> None:
        if fact() or monotonic_ns() > end:
            reactor.stop()
        else:
            reactor.call_later(0.005, look)

    look()
    reactor.run()
    reactor._stopped = False
    assert fact()


def test_timers_run_in_order_and_never_early(reactor: Reactor) -> None:
    seen: list[tuple[str, int]] = []
    start = monotonic_ns()
    for name, seconds in (("b", 0.02), ("a", 0.01), ("c", 0.02)):
        reactor.call_later(seconds, lambda name=name: seen.append((name, monotonic_ns())))  # type: ignore[misc]
    run(reactor)
    assert [name for name, _ in seen] == ["a", "b", "c"]
    assert seen[0][1] >= start + 10_000_000
    assert seen[1][1] >= start + 20_000_000


def test_lateness_does_not_count_the_whole_milliseconds_of_a_sleep(reactor: Reactor) -> None:
    late: list[int] = []
    for number in range(20):
        reactor.call_at(monotonic_ns() + 1_000_000 * number + 1, lambda: late.append(reactor.late_ns))
    run(reactor)
    assert len(late) == 20
    assert min(late) < 900_000


def test_a_callback_that_comes_soon_comes_in_the_next_turn(reactor: Reactor) -> None:
    seen: list[int] = []

    def again() -> None:
        seen.append(len(seen))
        if len(seen) < 3:
            reactor.soon(again)

    reactor.soon(again)
    run(reactor, seconds=0.01)
    assert seen == [0, 1, 2]


def test_a_call_from_another_thread_wakes_the_loop(reactor: Reactor) -> None:
    reactor.call_later(30, lambda: None)
    thread = threading.Timer(0.02, lambda: reactor.call_from_thread(reactor.stop))
    thread.start()
    reactor.run()
    thread.join()


def test_a_socket_closed_in_a_turn_gets_none_of_its_events(reactor: Reactor) -> None:
    ours, theirs = zip(*(socket.socketpair() for _ in range(2)), strict=True)
    seen: list[int] = []

    def handler(number: int) -> Callable[[int], None]:
        def on_event(events: int) -> None:
            if events & select.EPOLLIN:
                seen.append(number)
                reactor.close(ours[1 - number])

        return on_event

    for number, end in enumerate(ours):
        reactor.register(end.fileno(), handler(number), EDGES)
    for end in theirs:
        end.send(b"x")
    run(reactor)
    assert len(seen) == 1  # both were readable in the same batch
    assert ours[1 - seen[0]].fileno() == -1
    for end in (*ours, *theirs):
        end.close()


def test_what_a_timer_closes_is_closed_before_the_next_sleep(reactor: Reactor) -> None:
    ours, theirs = socket.socketpair()
    theirs.settimeout(5)
    reactor.register(ours.fileno(), lambda events: None, EDGES)
    reactor.call_later(0.01, lambda: reactor.close(ours))
    thread = threading.Thread(target=run, args=(reactor,), kwargs={"seconds": 0.5})
    thread.start()
    with closing(theirs):
        assert theirs.recv(1) == b""
        assert thread.is_alive()  # long before the next timer
    thread.join()


def test_a_fault_in_one_handler_is_reported_and_the_others_go_on(reactor: Reactor, crashes: Crashes) -> None:
    def faulty() -> None:
        raise ZeroDivisionError

    seen: list[int] = []
    ours, theirs = socket.socketpair()

    def faulty_handler(events: int) -> None:
        raise KeyError(events)

    reactor.register(ours.fileno(), faulty_handler, EDGES)
    reactor.soon(faulty)
    reactor.call_later(0.001, faulty)
    reactor.call_from_thread(faulty)
    reactor.call_later(0.01, lambda: seen.append(1))
    run(reactor)
    assert seen == [1]
    assert [type(error) for _, error in crashes].count(ZeroDivisionError) == 3
    assert (faulty_handler, KeyError) in [(callback, type(error)) for callback, error in crashes]
    ours.close()
    theirs.close()


def test_deadlines_expire_in_order_unless_discarded_or_renewed(reactor: Reactor) -> None:
    expired: list[str] = []
    deadlines = Deadlines[str](reactor, 0.02, expired.append)
    for item in ("a", "b", "c", "d"):
        deadlines.add(item)
    deadlines.discard("b")
    deadlines.discard("unknown")
    reactor.call_later(0.01, lambda: deadlines.add("a"))
    run_until(reactor, lambda: len(expired) == 3)
    assert expired == ["c", "d", "a"]
    assert len(deadlines) == 0
    deadlines.add("e")
    deadlines.clear()
    run(reactor)
    assert "e" not in expired


def test_an_expired_item_may_be_added_again(reactor: Reactor) -> None:
    expired: list[int] = []

    def expire(item: int) -> None:
        expired.append(item)
        if item < 2:
            deadlines.add(item + 1)

    deadlines = Deadlines[int](reactor, 0.005, expire)
    deadlines.add(0)
    run_until(reactor, lambda: len(expired) == 3)
    assert expired == [0, 1, 2]
