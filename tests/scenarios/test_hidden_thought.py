"""Answers that begin with tokens nobody is shown: who thinks has been read, and is to blame for nothing later."""

from __future__ import annotations

from typing import Any

from tests.core.script import Relay, chunk
from tests.scenarios.playbook import Prompt, Scene, beat

#: A token costs 0.1 ms.
LONG = 320.0


def thinker_beside(*, counted: bool, **body: Any) -> tuple[Scene, Prompt]:
    """A prompt of 3,000 tokens at 5 s is read in one step and thinks until 9 s; another is read in a step that ends at
    just that moment. Two before them have shown what prompts cost."""
    scene = Scene()
    steps = beat(20, 12_000, *((at, LONG) for at in (1500, 3000, 5000, 8700)))
    scene.victims(4, steps)
    scene.healthy(300, 12_000, running=5)
    ends = [next(at for at in steps if at > since + 100) for since in (1500, 3000, 5000, 8700)]
    for name, sent, end in (("first", 1490, ends[0]), ("second", 2990, ends[1]), ("other", 8690, ends[3])):
        scene.prompt(sent, 3000, name).answers([end + 2]).ends(end + 5)
    thinks = scene.prompt(4990, 3000, "thinks", **body)
    if counted:
        told = {"prompt_tokens": 3000, "completion_tokens": 1, "total_tokens": 3001}
        data = chunk("", usage=told)

        def count(relay: Relay) -> None:
            relay.response(ends[2] + 1, thinks.stream)
            relay.data(ends[2] + 1, thinks.stream, data)

        scene.at(ends[2] + 1, count)
    thinks.answers([ends[3] + 3]).ends(ends[3] + 40)
    return scene, thinks


def blamed(scene: Scene) -> list[list[str]]:
    return [[each["request_id"] for each in incident["culprits"]] for incident in scene.incidents()]


def test_who_asks_for_no_reasoning_to_be_shown_was_read_where_a_step_was_long() -> None:
    scene, _ = thinker_beside(counted=False, include_reasoning=False)
    scene.play()
    assert blamed(scene) == [["first"], ["second"], ["thinks"], ["other"]]


def test_usage_that_rises_shows_that_it_was_read() -> None:
    scene, thinks = thinker_beside(counted=True)
    scene.play(until=7000)
    request = next(each for each in scene.observed.ledger.requests.values() if each.request_id == "thinks")
    assert not request.in_prefill
    assert scene.observed.ledger.engines.in_service_now() == []
    scene.play()
    assert blamed(scene) == [["first"], ["second"], ["thinks"], ["other"]]
    assert thinks.generated == 1
