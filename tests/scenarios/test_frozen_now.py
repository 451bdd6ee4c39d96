"""Frozen now has one meaning: an open gap that is a stall already, of a stream that still owes tokens and that its own
reader does not hold up. Metrics, API and page give the same number."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.core.script import DONE, chunk, ns, usage
from tests.scenarios.playbook import Scene, beat

from prefillwatch.export import table
from prefillwatch.observer.api import streams_now
from prefillwatch.observer.live import LiveFeed
from prefillwatch.wire.tap import Kind


def frozen(scene: Scene, at: float) -> int:
    """By all three, which must agree."""
    scene.play(until=at)
    observed = scene.observed
    gauge = sum(observed.values(table.FROZEN_STREAMS).values())
    state = streams_now(observed.view(), 0.0)
    listed = sum(stream["frozen"] for stream in state["streams"])
    assert (gauge, listed, page(scene)["now"][2]) == (gauge, gauge, gauge)
    return round(gauge)


def page(scene: Scene) -> dict[str, Any]:
    """What the live page begins with."""
    observed = scene.observed
    feed = LiveFeed(observed.core, lambda: ns(observed.now_ms), dict, lambda _limit: [], lambda: 0.0)
    feed.open()
    hello: dict[str, Any] = json.loads(feed.hello().partition(b"data: ")[2])
    feed.close()
    return hello


def over(index: int = 0, reason: str = "stop") -> bytes:
    choice = {"index": index, "delta": {}, "logprobs": None, "finish_reason": reason}
    return chunk(choices=[choice])


def test_a_stream_in_a_freeze() -> None:
    scene = Scene()
    scene.victims(3, beat(20, 9000, (3000, 2500)))
    assert frozen(scene, 3050) == 0
    assert frozen(scene, 3300) == 3
    assert frozen(scene, 6000) == 0


def test_a_young_stream_is_judged_by_what_a_clear_step_takes() -> None:
    """It has too few gaps for a usual one of its own, and its model has none either."""
    scene = Scene()
    scene.victims(3, beat(20, 9000, (3000, 2500)))
    young = scene.prompt(2900, 16, "young", model="other")
    young.answers([2960, 2980, 3000.5])
    assert frozen(scene, 3300) == 4


def test_a_slow_reader_freezes_nobody() -> None:
    scene = Scene()
    scene.victims(2, beat(20, 6000))
    slow = scene.prompt(40, 16, "slow").answers(beat(20, 3000))
    slow.blocked(3001, 5900)
    assert frozen(scene, 5000) == 0
    assert scene.observed.values(table.OPEN_GAP)[("m",)] < 0.1


def test_a_choice_that_is_done_before_its_sibling() -> None:
    scene = Scene()
    request = scene.prompt(20, 16, "two", n=2)
    for at in beat(20, 1000):
        request.read(at)
        request.read(at + 0.1, index=0, choices=[{"index": 1, "delta": {"content": " word"}, "finish_reason": None}])
    scene.at(1010, lambda relay: relay.data(1010, request.stream, over(1)))
    for at in beat(20, 9000, start=1020):
        request.read(at)
    request.ends(9001)
    assert frozen(scene, 8000) == 0
    assert scene.observed.values(table.OPEN_GAP)[("m",)] < 0.1
    assert scene.observed.values(table.DECODING_STREAMS)[("m",)] == 1
    scene.play()
    assert scene.incidents() == []


@pytest.mark.parametrize("last", [over(), over(reason="length"), DONE, over() + DONE])
def test_a_server_that_holds_the_end_back(last: bytes) -> None:
    """Nothing is owed any more, however long the connection stays."""
    scene = Scene()
    request = scene.prompt(20, 16, "held").answers(beat(20, 1000))
    scene.at(1010, lambda relay: relay.data(1010, request.stream, last))
    assert frozen(scene, 9000) == 0
    assert scene.observed.values(table.OPEN_GAP).get(("m",), 0.0) == 0
    assert scene.observed.values(table.DECODING_STREAMS)[("m",)] == 0
    scene.at(30_000, lambda relay: relay.end(30_000, request.stream))
    scene.play()
    assert scene.incidents() == []


def test_usage_that_comes_late_is_waited_for_by_nobody() -> None:
    scene = Scene()
    request = scene.prompt(20, 16, "usage").answers(beat(20, 1000))
    scene.at(1010, lambda relay: relay.data(1010, request.stream, over()))
    scene.at(7000, lambda relay: relay.data(7000, request.stream, usage(16, 46) + DONE))
    scene.at(7001, lambda relay: relay.end(7001, request.stream))
    assert frozen(scene, 6000) == 0
    scene.play()
    assert scene.incidents() == []


def test_a_freeze_that_ends_with_the_last_token_is_counted() -> None:
    scene = Scene()
    request = scene.prompt(20, 16, "late").answers([*beat(20, 1000), 4000])
    scene.at(4000.1, lambda relay: relay.data(4000.1, request.stream, over() + DONE))
    scene.at(4001, lambda relay: relay.end(4001, request.stream))
    assert frozen(scene, 3000) == 1
    scene.play()
    assert sum(scene.stalls().values()) == 1


def test_one_that_goes_on_after_all_owes_tokens_again() -> None:
    scene = Scene()
    request = scene.prompt(20, 16, "again").answers(beat(20, 1000))
    scene.at(1010, lambda relay: relay.data(1010, request.stream, over()))
    request.answers(beat(20, 4000, start=3000))
    assert frozen(scene, 2900) == 0
    assert frozen(scene, 5500) == 1
    assert scene.observed.values(table.DECODING_STREAMS)[("m",)] == 1


def test_books_are_even_when_all_are_over() -> None:
    scene = Scene()
    scene.victims(4, beat(20, 3000))
    request = scene.prompt(20, 16, "two", n=2).answers(beat(20, 1000))
    scene.at(1010, lambda relay: relay.data(1010, request.stream, over() + over(1)))
    scene.at(2000, lambda relay: relay.add(2000, request.stream, Kind.BLOCKED))
    request.ends(2500)
    scene.play()
    assert scene.observed.values(table.DECODING_STREAMS)[("m",)] == 0
    assert scene.observed.ledger.engines.decoding == 0
    assert frozen(scene, 50_000) == 0
