"""Lanes when there are more streams than lanes."""

from __future__ import annotations

from tests.core.script import Observed, Relay, chunk, ns

from prefillwatch.core.view import RequestNow
from prefillwatch.observer.live import MOST_TICKS, Lanes


class Few:
    """A server with more streams than the two lanes that there are."""

    def __init__(self, streams: int) -> None:
        self.observed = Observed()
        self.relay = Relay(self.observed)
        self.lanes = Lanes(self.observed.core.owner, ns(0), most=2)
        self.observed.core.watch(self.lanes.take)
        self.streams = [self.relay.request(0, request_id=f"reader-{number}") for number in range(streams)]
        for stream in self.streams:
            self.relay.response(1, stream)
            self.relay.data(50, stream, chunk())
        self.relay.flush()
        self.observed.advance(100)

    def slot(self, name: str) -> int:
        return next(each.sequences[0].slot for each in self.observed.view().requests if each.request_id == name)

    @property
    def requests(self) -> dict[int, RequestNow]:
        return {each.rid: each for each in self.observed.view().requests}

    def follow(self) -> None:
        self.lanes.follow(self.observed.view().owners)

    @property
    def shown(self) -> list[str]:
        return sorted(self.requests[lane.rid].request_id for lane in self.lanes.all.values())


def test_there_are_no_more_lanes_than_the_most() -> None:
    few = Few(5)
    few.follow()
    assert len(few.lanes.all) == 2
    assert len(few.lanes.drain_new()) == 2


def test_one_that_stalls_takes_the_lane_of_one_that_is_well() -> None:
    few = Few(3)
    few.follow()
    (missing,) = {"reader-0", "reader-1", "reader-2"} - set(few.shown)
    before = {lane.number for lane in few.lanes.drain_new()}
    few.lanes.stalled([few.slot(missing)])
    assert missing in few.shown
    assert len(few.lanes.all) == 2
    assert set(few.lanes.drain_gone()) < before
    few.lanes.stalled([few.slot(missing)])
    assert few.lanes.drain_gone() == []


def test_with_all_lanes_stalled_nobody_loses_one() -> None:
    few = Few(3)
    few.follow()
    before = few.shown
    few.lanes.stalled([few.slot(f"reader-{number}") for number in range(3)])
    assert few.shown == before
    assert few.lanes.drain_gone() == []


def test_a_free_lane_goes_to_a_stream_that_had_none() -> None:
    few = Few(3)
    few.follow()
    (missing,) = {"reader-0", "reader-1", "reader-2"} - set(few.shown)
    shown = next(iter(few.shown))
    few.relay.end(150, few.streams[int(shown[-1])])
    few.relay.flush()
    few.observed.advance(300)
    few.follow()
    assert missing in few.shown
    assert shown not in few.shown


def test_ticks_of_streams_without_a_lane_are_not_kept() -> None:
    few = Few(5)
    assert len(few.lanes.drain_ticks()) == 2
    assert few.lanes.drain_ticks() == []


def test_of_more_ticks_than_anybody_could_see_the_latest_are_kept() -> None:
    few = Few(1)
    few.lanes.drain_ticks()
    slot, batch = few.slot("reader-0"), MOST_TICKS // 2
    for begin in range(0, 3 * batch, batch):
        few.lanes.take([slot] * batch, [ns(at) for at in range(begin, begin + batch)], [1] * batch)
    ((_, first, *steps),) = few.lanes.drain_ticks()
    assert (first, 1 + len(steps)) == (2 * batch, batch)
