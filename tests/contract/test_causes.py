"""A cause is one row; what it promises to others is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from prefillwatch.contract.causes import BY_NAME, CAUSES, FREEZE_CAUSES, UNATTRIBUTED, WAIT_CAUSES, Cause

RUNBOOKS = Path(__file__).resolve().parents[2] / "alerts/runbooks"
#: What an operator reads when streams freeze or first tokens are late, whatever for.
GENERAL = {"freeze": RUNBOOKS / "StreamFreeze.md", "wait": RUNBOOKS / "TTFTHigh.md"}

of_causes = pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)


def test_names_are_told_apart() -> None:
    assert len(BY_NAME) == len(CAUSES)
    assert UNATTRIBUTED in FREEZE_CAUSES
    assert UNATTRIBUTED in WAIT_CAUSES


def test_causes_of_one_kind_have_colours_of_their_own() -> None:
    for names in (FREEZE_CAUSES, WAIT_CAUSES):
        assert len({BY_NAME[name].colour for name in names}) == len(names)


@of_causes
def test_a_row_is_whole(cause: Cause) -> None:
    assert cause.freezes or cause.waits
    assert re.fullmatch(r"[a-z_]+", cause.name)
    assert re.fullmatch(r"#[0-9A-F]{6}", cause.colour)
    assert cause.words[0].islower()
    assert not cause.words.endswith(".")
    if cause.freezes:
        assert cause.title
        assert cause.remedy
    if cause.alert:
        assert cause.alert.summary.endswith(".")
        assert cause.alert.explanation.endswith(".")


@of_causes
def test_its_runbook_names_it(cause: Cause) -> None:
    assert re.search(rf'[`"]{cause.name}[`"]', (RUNBOOKS / f"{cause.runbook}.md").read_text())


@of_causes
def test_the_runbooks_for_all_causes_say_where_to_go_on(cause: Cause) -> None:
    if cause.freezes:
        assert f"`{cause.name}`" in GENERAL["freeze"].read_text()
    if cause.waits and cause.name != UNATTRIBUTED:
        assert f"`{cause.name}`" in GENERAL["wait"].read_text()
