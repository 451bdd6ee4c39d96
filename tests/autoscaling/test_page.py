"""The page says what was measured, and the small run comes out as it says."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from tests.autoscaling.page import LAWS, PAGE, PICTURE, kept, page, picture, rising
from tests.autoscaling.run import Outcome
from tests.autoscaling.traffic import SCENES


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return kept()


def test_the_tables_are_what_is_kept_and_the_small_run_is_what_comes_out(outcomes: list[Outcome]) -> None:
    assert PAGE.read_text() == page(outcomes, rising()), "python -m tests.autoscaling --words writes it anew"


def test_the_picture_is_what_is_kept(outcomes: list[Outcome]) -> None:
    assert PICTURE.read_text() == picture(outcomes)
    ElementTree.fromstring(picture(outcomes))


def test_every_law_was_played_on_every_scene_that_is_told_of(outcomes: list[Outcome]) -> None:
    told = {each.scene for each in outcomes}
    assert {"a day of chat", "long prompts, room to spare"} <= told
    wanted = [(scene.name, law) for scene in SCENES if scene.name in told for law in LAWS]
    assert [(each.scene, each.law) for each in outcomes] == wanted
    for each in outcomes:
        assert each.requests == each.kept + sum(each.missed.values())
        assert sum(moment.offered for moment in each.moments) in (0, each.requests)
