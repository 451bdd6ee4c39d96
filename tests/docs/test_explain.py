"""The page on `explain` shows what it tells of the worked example."""

from __future__ import annotations

from tests.docs.explained import PAGE, PICTURE, drawn, written
from tests.docs.worked_example import Example


def test_the_story_is_as_the_page_says(example: Example) -> None:
    assert PAGE.read_text() == written(PAGE.read_text(), example), "run: python -m tests.docs.explained"


def test_the_picture_is_of_the_story(example: Example) -> None:
    assert PICTURE.read_text() == drawn(example), "run: python -m tests.docs.explained"
