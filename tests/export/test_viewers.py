"""Viewers of the live page: same bytes for all, nobody waited for, nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from prefillwatch.export import viewers as viewers_module
from prefillwatch.export.viewers import IDLE, MOST_CONNECTIONS, MOST_KEPT, MOST_LOST, MOST_VIEWERS, Viewer, Viewers


class Hall:
    """Viewers, and what was asked of the feed behind them."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.hellos = 0
        self.viewers = Viewers(lambda: self.asked.append("begin"), lambda: self.asked.append("end"), self._hello)

    def _hello(self) -> bytes:
        self.hellos += 1
        return b"hello %d" % self.hellos

    def join(self) -> Viewer:
        viewer = self.viewers.join()
        assert viewer is not None
        return viewer


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 10))


async def take(viewer: Viewer, count: int) -> list[bytes | None]:
    return [await viewer.next() for _ in range(count)]


def test_the_feed_begins_with_the_first_and_ends_with_the_last() -> None:
    hall = Hall()
    one, other = hall.join(), hall.join()
    assert hall.asked == ["begin"]
    hall.viewers.leave(one)
    assert hall.asked == ["begin"]
    hall.viewers.leave(other)
    assert hall.asked == ["begin", "end"]
    hall.viewers.leave(hall.join())
    assert hall.asked == ["begin", "end", "begin", "end"]


def test_a_viewer_gets_a_hello_and_then_everything_in_order() -> None:
    async def go() -> None:
        hall = Hall()
        early = hall.join()
        hall.viewers.send(b"1")
        late = hall.join()
        hall.viewers.send(b"2")
        assert await take(early, 3) == [b"hello 1", b"1", b"2"]
        assert await take(late, 2) == [b"hello 2", b"2"]

    run(go())


def test_one_that_does_not_keep_up_begins_anew_and_holds_nobody_up() -> None:
    async def go() -> None:
        hall = Hall()
        slow, quick = hall.join(), hall.join()
        for number in range(3 * MOST_KEPT):
            hall.viewers.send(b"%d" % number)
            await quick.next()
        assert await slow.next() == b"hello 3"
        hall.viewers.send(b"news")
        assert await slow.next() == b"news"

    run(go())


def test_one_that_stopped_reading_gives_its_place_away_and_is_told_the_end_when_it_wakes() -> None:
    async def go() -> None:
        hall = Hall()
        stuck = hall.join()
        for _ in range(MOST_KEPT + MOST_LOST + 1):
            hall.viewers.send(b"news")
        assert len(hall.viewers) == 0
        assert hall.asked == ["begin", "end"]
        assert await stuck.next() is None
        hall.viewers.leave(stuck)
        assert hall.asked == ["begin", "end"]

    run(go())


def test_without_news_a_viewer_is_told_so_and_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewers_module, "IDLE_S", 0.01)

    async def go() -> None:
        hall = Hall()
        viewer = hall.join()
        assert await take(viewer, 3) == [b"hello 1", IDLE, IDLE]
        hall.viewers.send(b"news")
        assert await viewer.next() == b"news"

    run(go())


def test_there_are_only_so_many() -> None:
    hall = Hall()
    viewers = [hall.join() for _ in range(MOST_VIEWERS)]
    assert hall.viewers.join() is None
    hall.viewers.leave(viewers[0])
    assert hall.viewers.join() is not None


def test_connections_of_those_who_stopped_reading_are_bounded_too() -> None:
    hall = Hall()
    for _ in range(MOST_CONNECTIONS):
        hall.join()
        for _ in range(MOST_KEPT + MOST_LOST + 1):
            hall.viewers.send(b"news")
    assert len(hall.viewers) == 0
    assert hall.viewers.join() is None


def test_closing_ends_all_of_them() -> None:
    async def go() -> None:
        hall = Hall()
        viewer = hall.join()
        waiting = asyncio.ensure_future(take(viewer, 2))
        await asyncio.sleep(0)
        hall.viewers.close()
        assert (await waiting)[-1] is None

    run(go())
