"""The page on verdicts has a section for every cause, and its table is the order of the rules."""

from __future__ import annotations

import re
from pathlib import Path

from prefillwatch.analysis.verdicts import verdict
from prefillwatch.contract.causes import FREEZE_CAUSES, WAIT_CAUSES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "verdicts.md").read_text()


def sections(part: str) -> list[str]:
    _, _, text = PAGE.partition(f"## {part}\n")
    return re.findall(r"^### (\w+)", text.partition("\n## ")[0], re.MULTILINE)


def test_every_cause_of_freezes_has_a_section() -> None:
    assert sorted(sections("Causes of freezes")) == sorted(FREEZE_CAUSES)


def test_every_cause_of_waits_has_a_section() -> None:
    assert sorted([*sections("Causes of waits"), "unattributed"]) == sorted(WAIT_CAUSES)


def test_the_table_is_the_order_of_the_rules() -> None:
    shown = re.findall(r"^\| \d+ \| `(\w+)` \|", PAGE, re.MULTILINE)
    assert shown == [cause for cause, _, _ in verdict._RULES]


def test_the_tests_that_it_names_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    root = Path(__file__).resolve().parents[1]
    there = {name for path in root.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}
    assert named
    assert named <= there
