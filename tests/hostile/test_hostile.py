"""Every attack of the table against a running sidecar."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from tests.hostile.attack import Attack, judge
from tests.hostile.place import Place
from tests.hostile.table import GROUPS, Group

ROWS = [pytest.param((group, attack), id=f"{group.name}: {attack.name}") for group in GROUPS for attack in group.rows]


@pytest.fixture(scope="module")
def place_of() -> Iterator[Callable[[Group], Place]]:
    """The sidecar of a group; that of the group before ends when it is another's turn."""
    running: dict[str, Place] = {}
    with contextlib.ExitStack() as stack:

        def place_of(group: Group) -> Place:
            if group.name not in running:
                stack.close()
                running.clear()
                running[group.name] = stack.enter_context(group.start())
            return running[group.name]

        yield place_of


@pytest.mark.parametrize("row", ROWS)
def test_attack(row: tuple[Group, Attack], place_of: Callable[[Group], Place]) -> None:
    group, attack = row
    result = judge(place_of(group), attack)
    assert not result.problems(), "\n" + "\n".join(result.problems())
