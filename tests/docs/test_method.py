"""The page on the method says what the code does: its example is recomputed, its table is the sheet of tunables."""

from __future__ import annotations

import importlib
import re

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
    written,
)

from prefillwatch import analysis


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


def test_the_map_of_the_analysis_has_the_figures_of_the_example() -> None:
    page, map_ = PAGE.read_text(), str(analysis.__doc__).replace(",", "")
    for figure in ("306 ms", "288 ms", "2042", "1916", "901 ms", "5.04 stall seconds"):
        assert figure in page, "run: python -m tests.docs.worked_example"
        assert figure.removesuffix(" ms") in map_


def test_what_the_map_of_the_analysis_names_is_there() -> None:
    named = re.findall(r"\b(tokens|requests|steps|cost|verdicts|deadlines)\.([A-Z]\w+)", str(analysis.__doc__))
    assert len(named) >= 7
    for room, name in named:
        assert hasattr(importlib.import_module(f"prefillwatch.analysis.{room}"), name), f"{room}.{name}"
