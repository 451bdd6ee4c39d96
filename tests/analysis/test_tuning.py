"""The sheet of tunables: complete, and a value that can be moved without a trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefillwatch.analysis.tuning import DEFAULT, Tunable, Tuning, sheet

TESTS = Path(__file__).resolve().parents[1]
SHEET = sheet()


def test_the_sheet_has_all_groups() -> None:
    groups = {each.name.split(".")[0] for each in SHEET}
    assert groups == set(Tuning.__dataclass_fields__)
    assert len(SHEET) > 60


@pytest.mark.parametrize("each", SHEET, ids=lambda each: each.name)
def test_a_tunable_has_a_unit_an_origin_and_a_test_that_notices_it(each: Tunable) -> None:
    assert each.unit
    assert each.origin
    for test in each.noticed.split(", "):
        assert test == "recordings" or any(TESTS.rglob(f"{test}.py")), test


@pytest.mark.parametrize("each", SHEET, ids=lambda each: each.name)
def test_a_move_changes_one_value_of_a_copy(each: Tunable) -> None:
    group, name = each.name.split(".")
    for factor in (0.7, 1.3):
        moved = DEFAULT.moved(each.name, factor)
        new = getattr(getattr(moved, group), name)
        assert (new > each.value) == (factor > 1)
        assert type(new) is type(each.value)
        assert getattr(getattr(DEFAULT, group), name) == each.value


def test_a_small_count_moves_by_one() -> None:
    assert DEFAULT.moved("verdicts.few_steps", 0.7).verdicts.few_steps == 1
    assert DEFAULT.moved("verdicts.few_steps", 1.3).verdicts.few_steps == 3
