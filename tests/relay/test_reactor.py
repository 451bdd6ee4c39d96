"""The loop: order, time, and what survives a fault."""

from __future__ import annotations

import itertools
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
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


def test_timers_are_not_late_by_the_milliseconds_that_a_sleep_is_counted_in(reactor: Reactor) -> None:
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


# What can wait
# ---------------------------------------------------------------------------------------------------------------------


def busy(reactor: Reactor, sockets: list[socket.socket], seconds: float) -> list[str]:
    """Handlers at the back, each of which takes so long, and one at the front that is told after each of them."""
    seen: list[str] = []
    ours, theirs = socket.socketpair()

    def at_front(_events: int) -> None:
        seen.append("front")
        ours.recv(100)

    def at_back(_events: int) -> None:
        seen.append("back")
        theirs.send(b"x")
        until = monotonic_ns() + int(seconds * 1e9)
        while monotonic_ns() < until:
            pass

    reactor.register(ours.fileno(), at_front, select.EPOLLIN)
    for end in sockets:
        reactor.register_back(end.fileno(), at_back, select.EPOLLIN | select.EPOLLET)
    run_until(reactor, lambda: seen.count("back") >= len(sockets))
    reactor.forget(ours.fileno())
    ours.close()
    theirs.close()
    return seen


def test_what_is_at_the_front_comes_between_what_is_at_the_back(reactor: Reactor) -> None:
    pairs = [socket.socketpair() for _ in range(20)]
    for _, theirs in pairs:
        theirs.send(b"x")
    seen = busy(reactor, [ours for ours, _ in pairs], seconds=0.004)
    longest = max(len(run) for run in "".join(word[0] for word in seen).split("f"))
    assert longest <= 2, seen  # one more may have begun when the first had taken the whole time
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


def test_what_comes_soon_at_the_back_waits_for_its_share_of_a_turn(reactor: Reactor) -> None:
    seen: list[int] = []
    turns: list[int] = []

    def work(number: int) -> None:
        seen.append(number)
        until = monotonic_ns() + 4_000_000
        while monotonic_ns() < until:
            pass

    def count() -> None:
        turns.append(len(seen))
        if len(seen) < 10:
            reactor.soon(count)

    for number in range(10):
        reactor.soon_back(partial(work, number))
    reactor.soon(count)
    run_until(reactor, lambda: len(seen) == 10)
    assert seen == list(range(10))
    assert max(after - before for before, after in itertools.pairwise(turns)) <= 2


def test_a_descriptor_goes_to_the_front_with_what_it_has_to_tell(reactor: Reactor) -> None:
    ours, theirs = socket.socketpair()
    seen: list[int] = []
    reactor.register_back(ours.fileno(), seen.append)
    reactor.to_front(ours.fileno())
    reactor.to_front(ours.fileno())  # twice does no harm
    theirs.send(b"x")
    run_until(reactor, lambda: any(events & select.EPOLLIN for events in seen))
    reactor.to_back(ours.fileno())
    reactor.to_back(ours.fileno())
    seen.clear()
    theirs.send(b"x")
    run_until(reactor, lambda: any(events & select.EPOLLIN for events in seen))
    reactor.forget(ours.fileno())
    seen.clear()
    theirs.send(b"x")
    run(reactor, seconds=0.02)
    assert not seen
    ours.close()
    theirs.close()


def test_a_timer_that_falls_due_while_the_back_is_served_is_not_slept_through(reactor: Reactor) -> None:
    """A sleep until a moment that has passed would be one without end."""
    seen: list[int] = []

    def slow() -> None:
        until = monotonic_ns() + 5_000_000
        while monotonic_ns() < until:
            pass

    for _ in range(20):
        reactor.call_later(0.002, lambda: seen.append(1))
        reactor.soon_back(slow)
        run(reactor, seconds=0.02)
    assert len(seen) == 20


def test_a_fault_at_the_back_is_reported_and_the_others_go_on(reactor: Reactor, crashes: Crashes) -> None:
    ours, theirs = socket.socketpair()
    seen: list[int] = []

    def faulty(_events: int) -> None:
        raise ValueError("at the back")

    reactor.register_back(ours.fileno(), faulty)
    reactor.soon_back(lambda: seen.append(1))
    theirs.send(b"x")
    run(reactor, seconds=0.02)
    assert seen == [1]
    assert crashes
    reactor.forget(ours.fileno())
    ours.close()
    theirs.close()


def test_many_that_expire_together_do_so_a_few_per_turn(reactor: Reactor) -> None:
    expired: list[int] = []
    seen: list[int] = []

    def expire(number: int) -> None:
        expired.append(number)
        until = monotonic_ns() + 300_000
        while monotonic_ns() < until:
            pass

    deadlines = Deadlines[int](reactor, 0.005, expire)
    for number in range(100):
        deadlines.add(number)

    def count() -> None:
        seen.append(len(expired))
        if len(expired) < 100:
            reactor.soon(count)

    reactor.soon(count)
    run_until(reactor, lambda: len(expired) == 100)
    assert expired == list(range(100))
    assert max(after - before for before, after in itertools.pairwise(seen)) <= 32  # by the timer, and at the back
    deadlines.add(100)
    run_until(reactor, lambda: len(expired) == 101)
