"""The table of features: ours are shown by tests that are there, those of others by a link to where it was read."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "features.md"
TABLE = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("|")]
HEAD, ROWS = [cell.strip() for cell in TABLE[0]], [[cell.strip() for cell in row] for row in TABLE[2:]]
_SHOWN = re.compile(r'\[[^\]]+\]\((\S+) "(\w+)"\)')

of_rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_there_are_features_that_we_do_not_have() -> None:
    assert len(ROWS) > 15
    assert "no" in [row[1] for row in ROWS]


@of_rows
def test_ours_is_shown_by_a_test_or_is_missing(row: list[str]) -> None:
    shown = _SHOWN.findall(row[1])
    assert shown or row[1] == "no", row[1]
    assert row[1].count("](") == len(shown), "a link without the name of a test"
    for path, name in shown:
        assert name in names_in(PAGE.parent / path)


@of_rows
def test_of_others_it_says_yes_or_part_or_nothing(row: list[str]) -> None:
    assert len(row) == len(HEAD)
    assert set(row[2:]) <= {"yes", "part", "–"}


@pytest.mark.parametrize("other", HEAD[2:])
def test_it_is_said_where_that_was_read(other: str) -> None:
    assert re.fullmatch(r"\[[^\]]+\]\(https://github\.com/\S+\)", other)


def test_the_readme_leads_there() -> None:
    assert "docs/features.md" in (ROOT / "README.md").read_text()
