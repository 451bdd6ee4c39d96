"""Prompts by endpoints which nobody waits a token of, and by servers' own ones: they hold others up as well."""

from __future__ import annotations

import json
from functools import partial

import pytest
from tests.core.script import Relay
from tests.scenarios.playbook import Scene, beat, text_of

from prefillwatch.export import table


def learned(*freezes: tuple[float, float]) -> Scene:
    """A token of a prompt costs 0.1 ms: one prompt has shown it."""
    scene = Scene()
    scene.victims(6, beat(20, 14_000, (4000, 420), *freezes))
    scene.prompt(3990, 4000, "first").answers(beat(20, 4600, start=4423)).ends(4650)
    return scene


def whole(scene: Scene, sent: float, answered: float, path: str, body: dict[str, object], usage: int = 0) -> None:
    """A request that is answered in one piece."""

    def send(relay: Relay) -> None:
        stream = relay.request(sent, body, path=path, request_id="reader")
        said: dict[str, object] = {"object": "list", "data": [], "usage": {"prompt_tokens": usage} if usage else None}

        def answer(relay: Relay) -> None:
            relay.response(answered, stream, content_type="application/json")
            relay.data(answered, stream, json.dumps(said).encode())
            relay.end(answered + 1, stream)

        scene.at(answered, answer)

    scene.at(sent, send)


TEXTS = [text_of(f"text-{number}", 1600) for number in range(10)]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": TEXTS}),
        ("/v1/score", {"query": TEXTS[0], "items": TEXTS[1:]}),
        ("/rerank", {"query": TEXTS[0], "documents": TEXTS[1:]}),
        ("/pooling", {"input": [list(range(400))] * 10}),
        ("/v1/chat/completions/batch", {"messages": [[{"role": "user", "content": each}] for each in TEXTS]}),
    ],
)
def test_what_only_reads_is_a_prompt_like_any_other(path: str, body: dict[str, object]) -> None:
    scene = learned((8000, 420))
    whole(scene, 7990, 8440, path, body, usage=4000)
    scene.healthy(500, 14_000, running=7)
    scene.play()
    assert scene.causes() == ["prefill", "prefill"]
    assert [each["request_id"] for each in scene.incidents()[-1]["culprits"]] == ["reader"]


def test_scoring_all_the_time_teaches_nobody_that_this_is_the_pace() -> None:
    """Steps of 105 ms instead of 15 while texts are scored, twenty times a second."""
    scene = Scene()
    slow = beat(105, 25_000, start=5000)
    scene.victims(8, [*beat(15, 4990), *slow, *beat(15, 30_000, start=25_050)])
    for number in range(190):
        sent = 4995 + 105 * number
        whole(scene, sent, sent + 108, "/v1/score", {"query": TEXTS[0], "items": TEXTS[1:9], "number": number})
    scene.healthy(500, 30_000, running=8)
    scene.play()
    assert scene.counted(table.STALLS).keys() <= {"prefill", "unattributed"}
    assert scene.observed.values(table.BASELINE_STEP)[("m",)] == pytest.approx(0.015, rel=0.3)


def test_an_own_endpoint_of_the_server_is_timed() -> None:
    """llama.cpp's: its tokens are steps like those of others, and its prompt is to blame."""
    scene = learned((8000, 420))

    times = beat(20, 9000, start=8424)
    said = json.dumps({"content": " word", "stop": False, "tokens_evaluated": 4000}).encode()

    def send(relay: Relay) -> None:
        stream = relay.request(7990, {"prompt": text_of("native", 16_000)}, path="/completion", request_id="native")
        scene.at(8420, lambda relay: relay.response(8420, stream))
        for at in times:
            scene.at(at, partial(Relay.data, at_ms=at, stream=stream, data=b"data: " + said + b"\n\n"))
        scene.at(9010, lambda relay: relay.end(9010, stream))

    scene.at(7990, send)
    scene.play()
    assert [each["request_id"] for each in scene.incidents()[-1]["culprits"]] == ["native"]
    assert scene.observed.counts(table.TIME_TO_FIRST_TOKEN)[("m", "2k-8k")] == 2
