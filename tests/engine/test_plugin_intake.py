"""The queue between vLLM's event loop and our thread."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Sequence

import pytest

from prefillwatch.engine.plugin.intake import Intake


def test_items_come_out_in_order_in_another_thread() -> None:
    seen: list[int] = []
    workers: set[int] = set()
    last = threading.Event()

    def work(items: Sequence[int]) -> None:
        seen.extend(items)
        workers.add(threading.get_ident())
        if 999 in items:
            last.set()

    intake: Intake[int] = Intake(work)
    for number in range(1000):
        intake.put(number)
    assert last.wait(10)
    assert seen == list(range(1000))
    assert threading.get_ident() not in workers


def test_what_comes_while_a_batch_is_worked_through_is_not_forgotten() -> None:
    rounds: list[Sequence[str]] = []
    both = threading.Event()

    def work(items: Sequence[str]) -> None:
        rounds.append(items)
        if len(rounds) == 1:
            intake.put("second")
        else:
            both.set()

    intake: Intake[str] = Intake(work)
    intake.put("first")
    assert both.wait(10)
    assert rounds == [["first"], ["second"]]


def test_too_much_is_counted_and_does_not_wait() -> None:
    go_on = threading.Event()
    begun = threading.Event()

    def work(_: Sequence[int]) -> None:
        begun.set()
        assert go_on.wait(10)

    intake: Intake[int] = Intake(work, most=5)
    intake.put(0)
    assert begun.wait(10)
    for number in range(12):
        intake.put(number)
    assert intake.dropped == 7
    go_on.set()


def test_no_thread_before_the_first_step() -> None:
    before = threading.active_count()
    Intake(lambda _: None)
    assert threading.active_count() == before


def test_without_a_thread_nothing_is_kept_and_the_next_item_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    last = threading.Event()

    def work(items: Sequence[int]) -> None:
        seen.extend(items)
        last.set()

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    intake: Intake[int] = Intake(work)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        for number in range(10_000):
            intake.put(number)
        assert (intake.dropped, len(intake._items)) == (10_000, 0)
    intake.put(7)
    assert last.wait(10)
    assert seen == [7]


def test_a_fork_after_the_first_item_has_a_thread_of_its_own() -> None:
    read, write = os.pipe()
    first = threading.Event()

    def work(items: Sequence[bytes]) -> None:
        os.write(write, b"".join(items))
        first.set()

    intake: Intake[bytes] = Intake(work)
    intake.put(b"a")
    assert first.wait(10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # vLLM does it nevertheless
        child = os.fork()
    if not child:
        first.clear()
        intake.put(b"b")
        os._exit(0 if first.wait(10) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert os.read(read, 10) == b"ab"
    os.close(read)
    os.close(write)
