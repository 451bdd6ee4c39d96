"""Many prompts in one request: they are read one after the other, while tokens of the first ones come already."""

from __future__ import annotations

from functools import partial

from tests.core.script import Relay, usage
from tests.scenarios.playbook import Scene, beat

from prefillwatch.export import table

PROMPTS, TOKENS, TOGETHER = 64, 500, 4
STEP_MS = 160.0


def chunk(choice: int) -> bytes:
    return b'data: {"id":"c","model":"m","choices":[{"index":%d,"text":" w","finish_reason":null}]}\n\n' % choice


def test_all_steps_that_read_a_list_of_prompts_are_its_doing() -> None:
    """Four prompts fit into a step: sixteen steps, with a first token of four choices at the end of each."""
    scene = Scene()
    steps = [8000 + STEP_MS * number for number in range(1, PROMPTS // TOGETHER + 1)]
    scene.victims(
        6, [*beat(20, 3000), 3170, *beat(20, 7999, start=3190), *steps, *beat(20, 14_000, start=steps[-1] + 20)]
    )
    # A prompt of as many tokens as a step takes has shown what they cost.
    scene.prompt(2995, 2000, "first").answers([3173, 3190]).ends(3200)

    def send(relay: Relay) -> None:
        body = {"prompt": [[number] * TOKENS for number in range(PROMPTS)], "max_tokens": 8}
        stream = relay.request(7990, body, path="/v1/completions", request_id="list")
        scene.at(steps[0] + 1, lambda relay: relay.response(steps[0] + 1, stream))
        for number, at in enumerate(steps):
            data = b"".join(map(chunk, range(TOGETHER * (number + 1))))
            scene.at(at + 2, partial(Relay.data, at_ms=at + 2, stream=stream, data=data))
        scene.at(steps[-1] + 30, lambda relay: relay.data(steps[-1] + 30, stream, usage(PROMPTS * TOKENS, 600)))
        scene.at(steps[-1] + 31, lambda relay: relay.end(steps[-1] + 31, stream))

    scene.at(7990, send)
    scene.healthy(500, 14_000, running=7)
    scene.play()
    seconds = scene.counted(table.STALL_SECONDS)
    assert seconds["prefill"] > 0.95 * sum(seconds.values())
    assert [each["request_id"] for each in scene.incidents()[-1]["culprits"]] == ["list"]
