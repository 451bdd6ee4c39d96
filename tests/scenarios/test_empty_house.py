"""A pause of the engine is named where nothing else can have kept it busy; and with its reason, where one is known."""

from __future__ import annotations

import pytest
from tests.scenarios.playbook import Scene, beat
from tests.scenarios.test_yardsticks import score


def control(scene: Scene, at: float, path: str, answered: float | None = None, status: int = 200) -> None:
    streams: list[int] = []
    over = at + 2 if answered is None else answered
    scene.at(at, lambda relay: streams.append(relay.request(at, {}, path)))
    scene.at(over, lambda relay: relay.response(over, streams[0], status, "application/json"))
    scene.at(over + 0.1, lambda relay: relay.end(over + 0.1, streams[0], status=status))


def taught_cost(scene: Scene, steps: list[float]) -> None:
    """Prompts of 1,000 tokens for 100 ms each."""
    for number in range(6):
        first = next(at for at in steps if at > 2100 + 600 * number) + 3
        scene.prompt(1990 + 600 * number, 1000).answers([first]).ends(first + 1)


COST = [(2000.0 + 600 * number, 120.0) for number in range(6)]


def test_a_pause_by_request_is_nobodys_prompt() -> None:
    scene = Scene()
    steps = beat(25, 20_000, *COST, (10_000, 5000))
    scene.victims(20, steps)
    taught_cost(scene, steps)
    scene.prompt(9990, 30_000, "just begun").answers([18_000]).ends(18_001)
    control(scene, 10_005, "/pause?mode=keep")
    control(scene, 14_990, "/resume")
    for number in range(5):
        scene.prompt(11_000 + number, 200).answers([15_300]).ends(15_301)
    scene.healthy(500, 20_000, running=20)
    scene.play()
    paused = next(each for each in scene.incidents() if each["worst_gap_seconds"] > 4)
    assert (paused["cause"], paused["reason"], paused["victims"]) == ("engine_pause", "paused by request", 20)
    assert paused["culprits"] == []
    assert paused["evidence"]["strength"] == 1.0


def test_a_pause_that_the_server_refused_is_no_reason() -> None:
    scene = Scene()
    scene.victims(4, beat(25, 12_000, (6000, 2000)))
    control(scene, 5990, "/pause", status=404)
    scene.healthy(500, 12_000, running=4)
    scene.play()
    assert (scene.incident()["cause"], scene.incident()["reason"]) == ("engine_pause", None)


@pytest.mark.parametrize(("path", "reason"), [("/update_weights", "weight update"), ("/stop_profile", "profiler")])
def test_a_request_that_stops_the_engine_until_it_is_answered(path: str, reason: str) -> None:
    scene = Scene()
    scene.victims(4, beat(25, 12_000, (6000, 2000)))
    control(scene, 5990, path, answered=7990)
    scene.play()
    assert (scene.incident()["cause"], scene.incident()["reason"]) == ("engine_pause", reason)


@pytest.mark.parametrize("what", ["nothing", "other work", "a client that left", "more running", "no page at all"])
def test_a_silence_is_a_pause_only_of_an_engine_that_nothing_was_asked_of(what: str) -> None:
    scene = Scene()
    steps = beat(25, 12_000, *COST, (8000, 2000))
    scene.victims(4, steps)
    taught_cost(scene, steps)
    if what == "other work":
        score(scene, 7900, 9990)
    if what == "a client that left":
        scene.prompt(7500, 20_000).client_leaves(7990)
    if what != "no page at all":
        scene.healthy(500, 12_000, running=5 if what == "more running" else 4)
    scene.play()
    assert scene.causes()[-1] == ("engine_pause" if what == "nothing" else "unattributed")


def test_a_host_that_stops_takes_its_page_along() -> None:
    """No answer where one came every second is evidence."""
    scene = Scene()
    scene.victims(4, beat(25, 20_000, (8000, 4000)))
    scene.healthy(500, 7900, running=4)
    scene.healthy(12_100, 20_000, running=4)
    scene.play()
    assert (scene.incident()["cause"], scene.incident()["reason"]) == ("engine_pause", "server gave no answer")
