"""What viewers of the live page are told, as timelines: requests and tokens in, server-sent events out."""

from __future__ import annotations

import itertools
import json
from typing import Any

from tests.core.script import Observed, Relay, chunk, ns, usage

from prefillwatch.contract import limits
from prefillwatch.contract.causes import FREEZE_CAUSES, WAIT_CAUSES
from prefillwatch.observer.api import wall_offset
from prefillwatch.observer.live import LiveFeed, event
from prefillwatch.units import MS
from prefillwatch.wire.tap import Finish


class Watched:
    """An observed server and a viewer who keeps up: the state that a page would have."""

    def __init__(self) -> None:
        self.observed = Observed()
        self.relay = Relay(self.observed)
        self.figures_read = 0
        self.feed = LiveFeed(
            self.observed.core,
            lambda: ns(self.observed.now_ms),
            self._figures,
            self.observed.observation.incidents,
            wall_offset,
        )
        self.events: list[tuple[str, Any]] = []
        self.opened_ms = 0.0

    def _figures(self) -> dict[str, Any]:
        self.figures_read += 1
        return {"read": self.figures_read}

    def look(self) -> dict[str, Any]:
        """Open the feed and read the hello."""
        self.opened_ms = self.opened_ms or self.observed.now_ms
        self.feed.open()
        return self.hello()

    def hello(self) -> dict[str, Any]:
        text = self.feed.hello()
        assert text.startswith(b"retry: 1000\nevent: hello\ndata: ")
        return parsed(text.removeprefix(b"retry: 1000\n"))[1]

    def until(self, to_ms: float, every_ms: float = 100) -> None:
        """Tell what the relay has, then let time pass in beats."""
        self.relay.flush()
        while self.observed.now_ms < to_ms:
            self.observed.advance(min(self.observed.now_ms + every_ms, to_ms))
            self.events += [parsed(each) for each in self.feed.news(ns(self.observed.now_ms))]

    def told(self, name: str) -> list[Any]:
        """Entries of that name of all frames so far."""
        return [entry for kind, frame in self.events if kind == "frame" for entry in frame.get(name, [])]

    def ticks(self, lane: int) -> list[float]:
        """Moments of all tokens told of a lane, on the script's clock."""
        moments: list[float] = []
        for number, first, *steps in self.told("ticks"):
            if number == lane:
                moments += itertools.accumulate([first, *steps])
        return [moment + self.opened_ms for moment in moments]

    def last(self, kind: str = "frame") -> Any:
        return next(document for name, document in reversed(self.events) if name == kind)

    def stream(self, at_ms: float, tokens_ms: list[float], **head: Any) -> int:
        stream = self.relay.request(at_ms, **head)
        self.relay.response(at_ms + 1, stream)
        for moment in tokens_ms:
            self.relay.data(moment, stream, chunk())
        return stream


def parsed(message: bytes) -> tuple[str, Any]:
    assert message.endswith(b"\n\n")
    name, data = message[:-2].split(b"\n")  # JSON has no line breaks: one line each
    return name.removeprefix(b"event: ").decode(), json.loads(data.removeprefix(b"data: "))


def every(step_ms: float, start_ms: float, end_ms: float) -> list[float]:
    return [start_ms + step_ms * index for index in range(int((end_ms - start_ms) / step_ms))]


# --- Nobody looks


def test_while_nobody_looks_the_ledger_is_left_alone_and_there_is_no_news() -> None:
    watched = Watched()
    watched.stream(0, every(20, 50, 400))
    watched.until(500)
    assert watched.events == []
    assert watched.observed.ledger.onlooker is None
    watched.look()
    assert watched.observed.ledger.onlooker is not None
    watched.feed.close()
    assert watched.observed.ledger.onlooker is None
    watched.until(1500)
    assert watched.events == []
    assert watched.figures_read == 1


def test_a_viewer_is_told_how_to_say_every_cause_and_what_counts_as_high() -> None:
    hello = Watched().look()
    assert set(hello["causes"]) == {*FREEZE_CAUSES, *WAIT_CAUSES}
    assert all(hello["causes"].values())
    assert hello["limits"] == {
        "kv_usage": limits.KV_USAGE,
        "interference": limits.INTERFERENCE_SEEN,
        "long_prompt": limits.LONG_TOKENS,
    }
    assert hello["rule"][0] == limits.STALL_MIN_GAP


# --- A recording that is played


def test_at_its_end_all_is_told_that_was_not_and_then_that_it_is_over() -> None:
    watched = Watched()
    watched.look()
    watched.stream(0, every(20, 50, 990), request_id="reader")
    watched.until(1000)
    told = len(watched.ticks(1))
    watched.events = [parsed(each) for each in watched.feed.end()]
    assert [name for name, _ in watched.events] == ["frame", "figures", "incidents", "ended"]
    assert told + len(watched.ticks(1)) == 47
    assert watched.hello()["recording"] == "ended"


def test_its_end_is_known_to_those_who_come_later() -> None:
    watched = Watched()
    assert watched.feed.end() == []
    assert watched.look()["recording"] == "ended"


# --- Lanes and ticks


def test_every_token_is_told_once_and_at_its_time() -> None:
    watched = Watched()
    assert watched.look()["lanes"] == []
    moments = every(20, 50, 950)
    watched.stream(0, moments, request_id="reader-1")
    watched.until(1300)
    ((lane, name, choice, model, *_),) = watched.told("lanes")
    assert (name, choice, model) == ("reader-1", 0, "m")
    assert watched.ticks(lane) == moments


def test_tokens_that_come_batch_by_batch_fall_into_the_frames_they_belong_to() -> None:
    watched = Watched()
    watched.look()
    stream = watched.stream(0, [])
    for moment in every(20, 50, 850):
        watched.relay.data(moment, stream, chunk())
        watched.until(moment + 1, every_ms=50)
    watched.until(1200)
    assert watched.ticks(1) == every(20, 50, 850)
    frames = [frame for kind, frame in watched.events if kind == "frame"]
    assert all(after["t"] - before["t"] >= 200 for before, after in itertools.pairwise(frames))
    assert len(frames) >= 4


def test_who_comes_later_is_told_who_streams_already_and_nothing_twice() -> None:
    watched = Watched()
    watched.stream(0, every(20, 50, 400), request_id="early")
    watched.until(500)
    watched.look()
    watched.stream(510, [600, 620], request_id="late")
    watched.until(800)
    hello = watched.hello()
    assert [lane[1] for lane in hello["lanes"]] == ["early", "late"]
    early = hello["lanes"][0]
    assert [early[5] + 500, early[6] + 500] == [50, 370]
    assert hello["now"][:3] == watched.last()["now"][:3] == [2, 0, 1]


def test_a_hello_between_two_frames_says_what_was_said_until_the_last_one() -> None:
    watched = Watched()
    watched.look()
    watched.until(200)
    watched.stream(210, every(20, 220, 260), request_id="new")
    watched.relay.flush()
    watched.observed.advance(300)
    assert watched.hello()["lanes"] == []
    watched.until(400)
    assert [lane[1] for lane in watched.last()["lanes"]] == ["new"]
    assert [lane[1] for lane in watched.hello()["lanes"]] == ["new"]


def test_a_lane_goes_with_its_stream_after_its_last_ticks() -> None:
    watched = Watched()
    watched.look()
    stream = watched.stream(0, every(20, 50, 150))
    watched.relay.end(151, stream)
    watched.until(300)
    assert watched.ticks(1) == every(20, 50, 150)
    assert watched.told("gone") == [1]
    assert watched.last()["now"][0] == 0


def test_the_next_sequence_in_a_slot_has_a_lane_of_its_own() -> None:
    watched = Watched()
    watched.look()
    first = watched.stream(0, [50, 70], request_id="one")
    watched.relay.end(71, first)
    watched.until(100)  # half a frame: nothing was told of the first when the second takes its slot
    watched.stream(110, [120, 140], request_id="two")
    watched.until(400)
    assert [(lane[0], lane[1]) for lane in watched.told("lanes")] == [(1, "one"), (2, "two")]
    assert watched.ticks(1) == [50, 70]
    assert watched.ticks(2) == [120, 140]


def test_choices_of_one_request_have_lanes_of_their_own() -> None:
    watched = Watched()
    watched.look()
    stream = watched.stream(0, [])
    watched.relay.data(50, stream, chunk(index=0) + chunk(index=1))
    watched.relay.data(70, stream, chunk(index=0) + chunk(index=1))
    watched.until(400)
    assert sorted(lane[2] for lane in watched.told("lanes")) == [0, 1]
    assert watched.ticks(1) == watched.ticks(2) == [50, 70]


def test_tokens_that_came_at_once_are_told_as_a_burst() -> None:
    watched = Watched()
    watched.look()
    stream = watched.stream(0, [50, 70])
    watched.relay.data(90, stream, chunk() * 9)
    watched.until(400)
    ((lane, moment, events),) = watched.told("bursts")
    assert (lane, moment, events) == (1, 90, 9)


# --- Stalls


def freeze(watched: Watched, readers: int, from_ms: float, to_ms: float, prompt: int = 6000) -> None:
    """Readers whose tokens stop while a long prompt is read."""
    moments = [*every(20, 100, from_ms), *every(20, to_ms, to_ms + 400)]
    streams = [watched.stream(0, [], request_id=f"reader-{number}") for number in range(readers)]
    document = None
    for now_ms in every(10, 0, to_ms + 2500):
        if now_ms == from_ms - 30:
            document = watched.relay.request(now_ms, {"messages": [{"content": "word " * prompt}]}, request_id="doc")
            watched.relay.response(now_ms + 1, document)
        if now_ms in moments:
            for stream in streams:
                watched.relay.data(now_ms, stream, chunk())
        if now_ms == to_ms and document is not None:
            watched.relay.data(now_ms, document, chunk())
            watched.relay.data(now_ms + 5, document, usage(prompt, 2))
            watched.relay.end(now_ms + 6, document)
        watched.until(now_ms + 1, every_ms=50)


def test_a_stall_is_told_while_it_lasts_and_when_it_ended() -> None:
    watched = Watched()
    watched.look()
    freeze(watched, 3, from_ms=1500, to_ms=2300)
    stalls = [stall for stall in watched.told("stalls") if stall[2] < 2300]
    lasting = [stall for stall in stalls if stall[3] == 0]
    assert {stall[1] for stall in lasting} == {1, 2, 3}
    assert all(stall[2] == 1480 for stall in stalls)
    last = {stall[0]: stall for stall in stalls}
    assert [stall[3:] for stall in last.values()] == [[2300, "prefill"]] * 3
    frozen = [frame["now"][2] for kind, frame in watched.events if kind == "frame"]
    assert max(frozen) == 3
    assert frozen[-1] == 3  # the readers' answers were never ended, so at last they are silent again


def test_a_silence_that_the_client_ends_was_no_stall() -> None:
    watched = Watched()
    watched.look()
    stream = watched.stream(0, every(20, 50, 1000))
    watched.until(2500)
    assert [stall[3] for stall in watched.told("stalls")] == [0]
    watched.relay.end(2510, stream, Finish.CLIENT_CLOSED)
    watched.until(3000)
    assert [stall[3] for stall in watched.told("stalls")] == [0, -1]
    assert watched.hello()["stalls"] == []


def test_incidents_are_told_when_one_begins_and_when_it_is_over() -> None:
    watched = Watched()
    assert watched.look()["incidents"] == []
    freeze(watched, 3, from_ms=1500, to_ms=2300)
    lists = [document for kind, document in watched.events if kind == "incidents"]
    assert [lists[0][0]["ongoing"], lists[0][0]["victims"]] == [True, 3]
    final = next(each for each in lists[-1] if each["cause"] == "prefill")
    assert [culprit["request_id"] for culprit in final["culprits"]] == ["doc"]
    assert final["culprits"][0]["prompt_tokens"] == 6000
    quiet = [kind for kind, _ in watched.events]
    assert quiet.count("incidents") < quiet.count("frame") / 2


# --- Prefills


def test_a_prompt_is_told_from_being_sent_until_its_first_token() -> None:
    watched = Watched()
    watched.look()
    stream = watched.relay.request(100, {"messages": [{"content": "word " * 900}]}, request_id="doc")
    watched.until(400)
    ((number, name, model, tokens, exact, since, streaming),) = watched.told("prefills")
    assert (name, model, exact, since, streaming) == ("doc", "m", False, 100, True)
    assert tokens > 100
    assert watched.last()["in_service"] == [number]
    assert watched.last()["now"][:2] == [0, 1]
    assert watched.hello()["prefills"] == watched.told("prefills")
    watched.relay.response(410, stream)
    watched.relay.data(420, stream, chunk())
    watched.until(700)
    assert watched.told("prefills_over") == [[number, 420, True]]
    assert watched.last()["in_service"] == []


def test_a_prompt_that_was_read_between_two_frames_is_told_all_the_same() -> None:
    watched = Watched()
    watched.look()
    watched.until(200)
    watched.stream(210, [260], request_id="quick")
    watched.until(600)
    assert [(each[1], each[5]) for each in watched.told("prefills")] == [("quick", 210)]
    assert watched.told("prefills_over") == [[1, 260, True]]


def test_a_size_that_usage_tells_later_is_told_too() -> None:
    watched = Watched()
    watched.look()
    stream = watched.relay.request(100, {"messages": [{"content": "word " * 900}]})
    watched.relay.response(300, stream)
    watched.relay.data(310, stream, chunk())
    watched.until(600)
    watched.relay.data(610, stream, usage(901, 1))
    watched.relay.end(611, stream)
    watched.until(1200)
    assert [prefill[4] for prefill in watched.told("prefills")] == [False]
    assert watched.told("sizes") == [[1, 901]]


def test_a_prompt_whose_client_leaves_is_over_without_a_first_token() -> None:
    watched = Watched()
    watched.look()
    stream = watched.relay.request(100)
    watched.until(300)
    watched.relay.end(310, stream, Finish.CLIENT_CLOSED)
    watched.until(600)
    ((number, _, answered),) = watched.told("prefills_over")
    assert (number, answered) == (1, False)


# --- Figures, time and odd names


def test_figures_are_read_once_a_second() -> None:
    watched = Watched()
    assert watched.look()["figures"] == {"read": 1}
    watched.until(5000)
    assert 4 <= watched.figures_read - 1 <= 5
    assert [document["read"] for kind, document in watched.events if kind == "figures"][-1] == watched.figures_read


def test_viewers_time_goes_on_over_a_time_without_viewers() -> None:
    watched = Watched()
    first = watched.look()
    watched.until(1000)
    watched.feed.close()
    watched.until(5000)
    again = watched.look()
    assert (first["t"], again["t"]) == (0, 5000)
    assert again["instance"] != first["instance"]  # the numbers of lanes begin anew
    assert abs(again["unix"] - first["unix"]) < 1.0


def test_a_recording_played_faster_is_told_as_often_by_the_clock_on_the_wall() -> None:
    watched = Watched()
    watched.feed.rate = 10.0
    assert watched.look()["rate"] == 10.0
    watched.until(10_000)
    assert [kind for kind, _ in watched.events].count("frame") == 5
    assert watched.figures_read == 2


def test_names_of_clients_cannot_break_the_frame_of_an_event() -> None:
    name = "a\n\ndata: x\r\nevent: hello </script> \u2028"
    kind, document = parsed(event("frame", {"name": name}))
    assert (kind, document) == ("frame", {"name": name})


def test_half_a_surrogate_pair_in_a_name_is_told_as_an_escape() -> None:
    assert event("frame", {"name": "a\ud800"}) == b'event: frame\ndata: {"name":"a\\ud800"}\n\n'


def test_time_in_frames_is_that_of_the_last_advance() -> None:
    watched = Watched()
    watched.look()
    watched.until(1000)
    assert watched.last()["t"] * MS == ns(1000) - ns(0)
