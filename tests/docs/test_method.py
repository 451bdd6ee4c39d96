"""The page on the method says what the code does: its example is recomputed, its table is the sheet of tunables."""

from __future__ import annotations

import pytest
from tests.docs import tunables
from tests.docs.worked_example import (
    BUDGET,
    PAGE,
    PICTURE,
    TOKEN_MS,
    TOKENS,
    Example,
    picture,
    play,
    written,
)


@pytest.fixture(scope="module")
def example() -> Example:
    return play()


def test_the_example_comes_out_as_the_page_says(example: Example) -> None:
    assert PAGE.read_text() == written(PAGE.read_text(), example), "run: python -m tests.docs.worked_example"


def test_the_picture_is_of_the_example(example: Example) -> None:
    assert PICTURE.read_text() == picture(example), "run: python -m tests.docs.worked_example"


def test_the_example_finds_the_engine_and_the_culprit(example: Example) -> None:
    assert example.budget == BUDGET
    assert example.cost_ms == pytest.approx(TOKEN_MS, rel=0.01)
    assert sum(tokens for *_, tokens in example.steps) == TOKENS
    assert example.incident["cause"] == "prefill"
    assert example.incident["culprits"][0]["share"] == 1.0


def test_the_page_lists_all_tunables() -> None:
    page = PAGE.read_text()
    assert page == tunables.written(page), "run: python -m tests.docs.tunables"
    assert page.count("\n| `clock.") == 3
