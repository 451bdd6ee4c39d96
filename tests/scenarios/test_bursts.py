"""Hops that collect tokens and let them go in bursts: whatever prompts there were, they made none of the silences."""

from __future__ import annotations

import pytest
from tests.scenarios.playbook import Scene


def bursts(every: float, until: float, tokens: int, apart: float, start: float = 1000.0) -> list[float]:
    times, at = [], start
    while at < until:
        times += [at + apart * number for number in range(tokens)]
        at += every
    return times


@pytest.mark.parametrize(("tokens", "apart"), [(90, 0.6), (18, 2.0), (12, 4.0)])
@pytest.mark.parametrize("prompts", [False, True])
def test_bursts_that_are_spread_are_no_steps(tokens: int, apart: float, prompts: bool) -> None:
    scene = Scene()
    for number in range(4):
        times = [at + 0.1 * number for at in bursts(1500, 30_000, tokens, apart)]
        scene.prompt(10 + number, 16).answers(times).ends(times[-1] + 2)
    for number in range(18) if prompts else ():
        scene.prompt(1400 + 1500 * number, 4000).answers([2500 + 1500 * number]).ends(2501 + 1500 * number)
    scene.healthy(500, 30_000, running=4)
    scene.play()
    assert set(scene.stalls()) == {"buffering"}


@pytest.mark.parametrize("prompts", [False, True])
def test_bursts_in_one_read_are_a_hop_however_few_tokens_are_in_some(prompts: bool) -> None:
    scene = Scene()
    for number in range(4):
        stream = scene.prompt(10 + number, 16)
        for burst in range(1, 15):
            stream.read(2000 * burst + 0.2 * number, events=3 if burst == 7 else 80)
        stream.ends(29_000)
    for number in range(10) if prompts else ():
        scene.prompt(2100 + 2000 * number, 4000).answers([4000 + 2000 * number]).ends(4001 + 2000 * number)
    scene.play()
    assert set(scene.stalls()) == {"buffering"}


def test_an_engine_that_reads_prompts_between_a_few_steps_is_no_hop() -> None:
    """Eight tokens at the usual pace between one chunk of a long prompt and the next."""
    scene = Scene()
    steps = [100 + 17 * number for number in range(240)]
    at = steps[-1] + 17
    for _ in range(12):
        at += 1000
        steps += [at + 17 * number for number in range(8)]
        at = steps[-1]
    steps += [at + 17 * number for number in range(1, 100)]
    scene.victims(3, [float(each) for each in steps])
    first = steps[-100] + 18
    scene.prompt(steps[239] - 10, 60_000).answers([first]).ends(first + 1)
    scene.play()
    assert "buffering" not in scene.stalls()
