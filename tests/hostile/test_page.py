"""docs/security.md says what is in the table of attacks: every name, and how many there are."""

from __future__ import annotations

from pathlib import Path

from tests.hostile.page import attacks_listed
from tests.hostile.table import GROUPS

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
_REMEDY = "run: python -m tests.hostile --page docs/security.md"


def test_the_page_names_every_attack() -> None:
    assert attacks_listed() in PAGE.read_text(), _REMEDY


def test_the_page_has_figures_of_every_group() -> None:
    for group in GROUPS:
        assert f"| {group.name} ({len(group.rows)}) |" in PAGE.read_text(), _REMEDY


def test_names_are_names() -> None:
    names = [f"{group.name}: {attack.name}" for group in GROUPS for attack in group.rows]
    assert len(set(names)) == len(names)
