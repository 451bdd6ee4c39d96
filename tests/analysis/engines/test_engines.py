"""Streams to engines. Times in milliseconds; engines step every 20 and every 23 ms."""

from __future__ import annotations

import numpy as np

from prefillwatch.analysis.engines import Engines
from prefillwatch.analysis.requests import Place
from prefillwatch.units import MS


class Door:
    """Streams join, read with the steps of an engine, and leave."""

    def __init__(self, told: int = 2) -> None:
        self.engines = Engines()
        self.engines.told(told, 0)
        self.now = 0.0
        self.streams: dict[int, float] = {}  # by slot: from one read to the next

    def join(self, slot: int, every: float, rid: int | None = None) -> None:
        self.engines.joined(slot, round(self.now * MS), rid)
        self.streams[slot] = every

    def leave(self, slot: int) -> None:
        del self.streams[slot]
        self.engines.leaves(slot)
        self.engines.left(slot)

    def until(self, until: float) -> None:
        while self.now < until:
            since, self.now = self.now, min(self.now + 100.0, until)
            reads = sorted(
                (round((at + 0.2 * slot) * MS), slot)
                for slot, every in self.streams.items()
                for at in np.arange(0, self.now, every).tolist()
                if at >= since
            )
            if reads:
                times, slots = zip(*reads, strict=True)
                for engine, steps in self.engines.feed(np.array(slots), np.array(times)):
                    self.engines.steps(engine, steps)
            now_ns = round(self.now * MS)
            for engine, steps in self.engines.flush(now_ns):
                self.engines.steps(engine, steps)
            self.engines.place(now_ns)
            self.engines.settle(now_ns)

    def together(self) -> list[list[int]]:
        """Slots by engine, in no order of engines."""
        found: dict[int, list[int]] = {}
        for slot in sorted(self.streams):
            place = self.engines.place_of(slot)
            assert place is not None
            found.setdefault(place.engine, []).append(slot)
        return sorted(found.values())


def two() -> Door:
    door = Door()
    for slot in range(6):
        door.join(slot, 23.0 if slot % 2 else 20.0)
    door.until(2000)
    return door


def test_streams_of_two_engines_are_told_apart() -> None:
    door = two()
    assert door.together() == [[0, 2, 4], [1, 3, 5]]
    sure = [door.engines.sure_of(slot, door.engines.place_of(slot), 1_900 * MS) for slot in door.streams]
    assert min(sure) > 0.99


def test_engines_in_step_are_one() -> None:
    door = Door(told=4)
    for slot in range(8):
        door.join(slot, 20.0)
    door.until(2000)
    assert door.together() == [list(range(8))]
    assert len(door.engines) == 1


def test_one_engine_asks_nobody() -> None:
    door = Door(told=1)
    door.join(0, 20.0)
    assert not door.engines.several
    place = door.engines.place_of(0)
    assert place is not None
    assert place.engine == 0
    assert door.engines.sure_of(0, place, 0) == 1.0


def test_who_was_there_before_the_page_told_of_several_is_placed_anew() -> None:
    door = Door(told=1)
    for slot in range(6):
        door.join(slot, 23.0 if slot % 2 else 20.0)
    door.until(1000)
    assert door.together() == [list(range(6))]
    door.engines.told(2, 1000 * MS)
    door.until(3000)
    assert door.together() == [[0, 2, 4], [1, 3, 5]]


def test_a_prompt_waits_in_both_until_its_answer_shows_where_it_was() -> None:
    door = two()
    door.engines.sent(7, 2000 * MS, 100, 100, streamed=True)
    assert [rid for rid, _ in door.engines.in_service_now()].count(7) in (0, 2)
    door.until(2100)
    door.join(6, 20.0, rid=7)
    door.until(3000)
    assert door.together() == [[0, 2, 4, 6], [1, 3, 5]]
    firsts = [rid for rid, _, _ in door.engines.drain_splits()]
    assert firsts == [7]  # once, on one engine
    settled_ns = door.engines.settled_ns
    door.until(4000)
    assert door.engines.settled_ns > settled_ns  # nobody waits for it any more


def test_nothing_settles_beyond_a_first_token_whose_engine_is_not_known() -> None:
    door = two()
    door.engines.sent(7, 2000 * MS, 100, 100, streamed=True)
    door.join(6, 20.0, rid=7)
    before_ns = door.engines.settled_ns
    door.until(2060)
    assert door.engines.settled_ns <= max(before_ns, 2000 * MS)


def test_a_short_answer_is_placed_when_it_ends() -> None:
    door = two()
    door.join(6, 23.0)
    place = door.engines.place_of(6)
    door.until(2200)
    door.leave(6)
    other = door.engines.place_of(1)
    assert place is not None
    assert other is not None
    assert place.engine == other.engine


def test_an_engine_of_nobody_takes_who_moves_with_none() -> None:
    door = Door()
    for slot in (0, 2):
        door.join(slot, 20.0)
    door.until(1500)
    door.join(1, 23.0)
    door.until(3000)
    assert door.together() == [[0, 2], [1]]
    assert door.engines.sure_of(1, door.engines.place_of(1), 2_900 * MS) > 0.99


def test_who_was_placed_wrongly_is_moved() -> None:
    """Two engines in step by chance for a while, then not."""
    door = Door()
    for slot in range(6):
        door.join(slot, 20.0)
    door.until(1000)
    assert door.together() == [list(range(6))]
    for slot in (1, 3, 5):
        door.streams[slot] = 23.0
    door.until(4000)
    assert door.together() == [[0, 2, 4], [1, 3, 5]]
    moved_lately = door.engines.sure_of(0, door.engines.place_of(0), 1_000 * MS)
    assert moved_lately == 0.0  # steps of then were of both


def test_who_reads_too_seldom_to_tell_is_placed_after_a_while() -> None:
    door = two()
    door.join(6, 690.0)
    place = door.engines.place_of(6)
    assert place is not None
    door.until(3300)
    assert place.engine < 0
    door.until(3800)
    assert place.engine >= 0


def test_one_in_ten_is_as_much_doubt_as_a_verdict_stands() -> None:
    door = two()
    assert door.engines.is_placed(60, Place(0, 0.91), 1_900 * MS)
    assert not door.engines.is_placed(60, Place(0, 0.89), 1_900 * MS)
    assert not door.engines.is_placed(60, Place(), 1_900 * MS)
