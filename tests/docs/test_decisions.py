"""Every decision is in the index, and is told in the same parts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "decisions"
DECISIONS = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")


def test_the_index_has_them_all_and_no_other() -> None:
    index = (FOLDER / "README.md").read_text()
    assert sorted(re.findall(r"\]\(([\w-]+\.md)\)", index)) == [path.name for path in DECISIONS]


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_says_what_was_chosen_why_and_what_it_costs(path: Path) -> None:
    text = path.read_text()
    for part in ("To decide", "Chosen", "Why", "What it costs"):
        assert f"**{part}.**" in text
    assert len(text.splitlines()) <= 45, "half a page"
