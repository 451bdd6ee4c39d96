"""What is left of a run when all is taken out of it that a verdict does not need."""

from __future__ import annotations

from tests.simulation.play import played, scene
from tests.simulation.rows import ROWS
from tests.simulation.shrink import Complaint, Shrinker, as_test, worst

#: Nothing is wrong with it, so that it can be had from any run with a prompt.
RIGHT = Complaint("prefill", "prefill")
WHOLE = scene(*ROWS["vLLM, asynchronous"], 2)
SMALL = Shrinker(RIGHT).shrink(WHOLE)


def test_one_who_waits_and_one_whom_it_waits_for_are_left() -> None:
    assert len(WHOLE.jobs) > 5
    assert len(SMALL.jobs) == 2
    assert SMALL.until < WHOLE.until / 2
    assert RIGHT.seconds(played(SMALL)) > 0


def test_it_reads_as_a_scene_that_fails_where_the_verdict_is_wrong() -> None:
    text = as_test(SMALL, RIGHT, "an_example")
    assert "scene.prompt(" in text
    assert text.endswith('assert "prefill" not in scene.stalls()\n')
    assert len(text.splitlines()) < 20


def test_what_a_playbook_has_no_words_for_is_a_run_of_the_simulation() -> None:
    whole = scene(*ROWS["vLLM, lists of prompts"], 0)
    text = as_test(whole, Complaint("prefill", "frontend"), "an_example")
    assert "Scene(" in text
    assert "prompts=" in text


def test_only_what_is_wrong_is_complained_of() -> None:
    assert not RIGHT.justified
    assert not Complaint("ours", "unattributed").justified
    assert Complaint("prefill", "unattributed").justified
    assert worst(played(SMALL)) is None
