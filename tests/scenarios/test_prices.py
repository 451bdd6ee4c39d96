"""A prompt is blamed for what such prompts take: by those before it, and by those after it where it is the first."""

from __future__ import annotations

import pytest
from tests.scenarios.playbook import Scene, beat
from tests.scenarios.test_empty_house import COST, taught_cost

#: A prompt of 1,000 tokens takes 100 ms of these, one of 2,000 twice as long.
COMPILES = (4000.0, 2520.0)
LATER = [(8000.0 + 1000 * number, 220.0) for number in range(4)]


def first_token_after(steps: list[float], at: float) -> float:
    return next(each for each in steps if each > at + 100) + 2


@pytest.mark.parametrize(("others", "cause"), [(4, "engine_pause"), (0, "unattributed")])
def test_a_first_prompt_that_takes_far_too_long_is_judged_by_those_after_it(others: int, cause: str) -> None:
    """The engine compiles for it, and its own seconds would make a price of a millisecond per token. Where no other
    comes, that cannot be known."""
    scene = Scene()
    steps = beat(20, 20_000, COMPILES, *LATER[:others])
    scene.victims(4, steps)
    for at, _ in (COMPILES, *LATER[:others]):
        first = first_token_after(steps, at)
        scene.prompt(at - 30, 2000).answers([first]).ends(first + 1)
    scene.healthy(500, 20_000, running=4)
    scene.play()
    assert scene.causes()[0] == cause
    assert set(scene.causes()[1:]) <= {"prefill"}


def test_a_first_prompt_at_a_usual_price_is_named_at_once() -> None:
    scene = Scene()
    steps = beat(20, 8000, (4000, 220))
    scene.victims(4, steps)
    first = first_token_after(steps, 4000)
    scene.prompt(3970, 2000).answers([first]).ends(first + 1)
    scene.play(until=6000)
    assert scene.stalls() == {"prefill": 4}


def test_a_pause_with_a_long_prompt_in_flight_is_not_certain() -> None:
    """Three times what the prompt should take: too long for it, and not long enough to clear it."""
    scene = Scene()
    steps = beat(25, 12_000, *COST, (8000, 1025))
    scene.victims(4, steps)
    taught_cost(scene, steps)
    scene.prompt(7980, 3000).answers([9050]).ends(9051)
    scene.healthy(500, 12_000, running=4)
    scene.play()
    assert scene.causes()[-1] == "unattributed"


def test_who_left_in_the_midst_of_being_read_is_to_blame() -> None:
    """The step that its client did not wait for goes on to its end, whatever the server does then."""
    scene = Scene()
    steps = beat(25, 12_000, *COST, (8000, 225))
    scene.victims(4, steps)
    taught_cost(scene, steps)
    scene.prompt(7970, 2000, "left").client_leaves(8100)
    scene.healthy(500, 12_000, running=4)
    scene.play()
    last = scene.incidents()[-1]
    assert (last["cause"], [each["request_id"] for each in last["culprits"]]) == ("prefill", ["left"])


def test_arguments_that_a_parser_holds_back_are_nobodys_fault() -> None:
    """One stream is silent and then has it all at once, while the others flow: servers do so on purpose."""
    scene = Scene()
    steps = beat(20, 12_000)
    scene.victims(3, steps)
    held = [at for at in steps if not 4000 < at < 4800]
    caller = scene.prompt(20, 50)
    caller.answers([at for at in held if at < 4500])
    caller.read(4801, 1, " word" * 40)
    caller.answers([at for at in held if at > 4810]).ends(12_050)
    scene.healthy(500, 12_000, running=4)
    scene.play()
    assert scene.causes() == ["unattributed"]


def test_who_reads_every_fifth_step_was_not_left_out() -> None:
    """Its pace is not known with its first gaps, and those of its model are others'."""
    scene = Scene()
    steps = beat(25, 12_000)
    scene.victims(3, steps)
    scene.prompt(2990, 50).answers([at + 1 for at in steps if at > 3000][::5]).ends(12_050)
    scene.play()
    assert "preemption" not in scene.causes()
    assert all(each["evidence"]["baseline_of"] == "clear gaps of the model" for each in scene.incidents())
