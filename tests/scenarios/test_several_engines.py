"""Two engines behind one door: nobody is blamed for what another engine's streams waited for."""

from __future__ import annotations

from tests.scenarios.playbook import Scene, beat

from prefillwatch.analysis.delays import Stall

UNTIL, LONG = 9000, 600.0


def two_engines(first: list[float], second: list[float]) -> Scene:
    scene = Scene()
    scene.victims(3, first)
    scene.victims(3, second)
    scene.healthy(50, UNTIL, running=6, engines=2)
    return scene


def test_a_prompt_of_the_other_engine_is_not_to_blame() -> None:
    """Both engines read a prompt at about the same time."""
    first = beat(20, UNTIL, (5000, LONG))
    second = beat(21.7, UNTIL, (5060, 500.0))
    scene = two_engines(first, second)
    for name, steps in (("a", first), ("b", second)):
        end = next(at for at in steps if at > 5400)
        times = [at + 0.5 for at in steps if end <= at < end + 600]
        scene.prompt(4900, 6000, name).answers(times).ends(times[-1] + 3)
    stalls: list[Stall] = []
    scene.observed.publisher.stall = stalls.append  # type: ignore[method-assign,assignment]
    scene.play()
    assert {stall.cause for stall in stalls} == {"prefill"}
    blamed = [share.request.request_id for stall in stalls for share in stall.shares]
    assert sorted(blamed) == ["a", "a", "a", "b", "b", "b"]
    assert all(float(str(stall.evidence["engine_sureness"])) > 0.9 for stall in stalls)


def test_an_engine_that_stands_still_while_the_other_goes_on_is_no_preemption() -> None:
    first = beat(20, UNTIL, (5000, 1500))
    scene = two_engines(first, beat(21.7, UNTIL))
    scene.play()
    assert scene.stalls() == {"engine_pause": 3}


def test_a_prompt_of_another_engine_does_not_explain_a_pause() -> None:
    """It is being read there, as its first token shows, while this engine stands still."""
    first = beat(20, UNTIL, (5000, 1500))
    second = beat(21.7, UNTIL, (4980, LONG))
    scene = two_engines(first, second)
    end = next(at for at in second if at > 5400)
    times = [at + 0.5 for at in second if end <= at < end + 1500]
    scene.prompt(4900, 6000, "b").answers(times).ends(times[-1] + 3)
    scene.play()
    assert scene.stalls() == {"prefill": 3, "engine_pause": 3}


def test_engines_in_step_are_held_up_by_a_prompt_of_any() -> None:
    steps = beat(20, UNTIL, (5000, LONG))
    scene = two_engines(steps, [at + 0.3 for at in steps])
    end = next(at for at in steps if at > 5400)
    times = [at + 0.5 for at in steps if end <= at < end + 600]
    scene.prompt(4900, 6000, "a").answers(times).ends(times[-1] + 3)
    scene.play()
    assert scene.stalls() == {"prefill": 6}
    assert scene.incident()["culprits"][0]["request_id"] == "a"
