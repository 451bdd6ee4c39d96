"""The table of attacks in docs/security.md: a line for each group, with the worst that any of its attacks cost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tests.hostile.attack import MIB, Result
from tests.hostile.meter import ROLES
from tests.hostile.table import GROUPS

_PLACE = re.compile(r"(<!-- attacks: .*? -->\n).*?(<!-- end -->)", re.DOTALL)


def with_attacks(text: str, results: dict[str, Sequence[Result]]) -> str:
    """The page with what was measured, by name of group. Raises ValueError where it has no place for it."""
    if not _PLACE.search(text):
        raise ValueError("the page has no place for the table of attacks")
    return _PLACE.sub(lambda match: f"{match[1]}\n{_table(results)}\n\n{attacks_listed()}\n\n{match[2]}", text)


def _table(results: dict[str, Sequence[Result]]) -> str:
    head = ("attacks", "held up", *(f"{role}, µs per byte" for role in ROLES), *(f"{role}, memory" for role in ROLES))
    rows = [_row(name, of_group) for name, of_group in results.items()]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ("---",) * len(head), *rows))


def _row(name: str, results: Sequence[Result]) -> Iterable[str]:
    yield f"{name} ({len(results)})"
    yield f"{max(0.0, *(each.held_up_s for each in results)) * 1e3:.0f} ms"
    for role in ROLES:
        yield f"{max(each.cpu_us_per_byte(role) for each in results):.2f}"
    for role in ROLES:
        yield f"{max(each.memory(role) for each in results) / MIB:.1f} MiB"


def attacks_listed() -> str:
    """Every attack by its name."""
    return "\n".join(f"- *{group.name}*: {'; '.join(attack.name for attack in group.rows)}." for group in GROUPS)
