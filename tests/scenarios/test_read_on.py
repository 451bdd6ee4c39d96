"""Servers that read a prompt to its end though its client has left, as llama.cpp's does: the work stays somebody's."""

from __future__ import annotations

import pytest
from tests.scenarios.playbook import Scene, beat

from prefillwatch.export import table

#: A token of a prompt costs 0.25 ms, a step holds 2,048 of them.
FULL_STEP = 525.0


def learned(*freezes: tuple[float, float], reads_on: bool = True) -> Scene:
    """Five streams; two prompts that stayed have shown what prompts cost."""
    scene = Scene()
    steps = beat(15, 20_000, *((at, FULL_STEP) for at in (3000, 3500, 6000, 6500)), *freezes)
    scene.victims(5, steps)
    for sent in (2990, 5990):
        scene.prompt(sent, 4086).answers([next(at for at in steps if at > sent + 1020) + 3]).ends(sent + 1200)
    scene.healthy(500, 9500, running=5, reads_on=reads_on)
    return scene


def ghost(scene: Scene, until: float) -> None:
    """6,000 tokens whose client leaves after 0.4 s; the page counts it until it has been read."""
    scene.prompt(9990, 6000, "ghost").client_leaves(10_400)
    scene.healthy(10_200, until, running=6, every=250, reads_on=True)
    # It is done, but in which steps it was is not settled yet.
    scene.healthy(until + 60, 20_000, running=5, reads_on=True)


def test_the_prompt_of_a_client_that_left_is_still_to_blame() -> None:
    scene = learned((10_000, FULL_STEP), (10_500, FULL_STEP), (11_000, FULL_STEP))
    ghost(scene, until=11_500)
    scene.play()
    assert scene.stalls() == {"prefill": 5 * 7}
    last = scene.incidents()[-1]
    assert [(each["request_id"], each["share"]) for each in last["culprits"]] == [("ghost", 1.0)]
    assert scene.observed.values(table.STALL_SECONDS)[("m", "prefill")] == pytest.approx(5 * 7 * 0.51, rel=0.02)


def test_a_short_prompt_beside_it_does_not_take_its_blame() -> None:
    scene = learned((10_000, FULL_STEP), (10_500, FULL_STEP), (11_000, FULL_STEP))
    ghost(scene, until=11_500)
    scene.prompt(10_450, 130, "short").answers([11_580]).ends(11_600)
    scene.play()
    assert scene.stalls() == {"prefill": 5 * 7}
    last = scene.incidents()[-1]
    shares = {each["request_id"]: each["share"] for each in last["culprits"]}
    assert shares["ghost"] > 0.9


def test_what_has_been_read_is_blamed_for_nothing_later() -> None:
    """It was short, and the page says that nothing but the known streams runs: the pause after it is not its."""
    scene = learned((10_000, FULL_STEP), (15_000, 1500))
    scene.prompt(9990, 2000, "ghost").client_leaves(10_100)
    scene.healthy(10_600, 20_000, running=5, reads_on=True)
    scene.play()
    assert scene.incidents()[-1]["cause"] != "prefill"
    assert scene.incidents()[-1]["culprits"] == []


def test_other_servers_drop_it_with_the_next_step() -> None:
    scene = learned((10_000, FULL_STEP), (12_000, FULL_STEP), reads_on=False)
    scene.prompt(9990, 6000, "gone").client_leaves(10_400)
    scene.healthy(10_500, 20_000, running=5)
    scene.play()
    assert scene.incidents()[-1]["culprits"] == []
