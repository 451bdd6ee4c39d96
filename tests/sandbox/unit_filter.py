"""The system calls that a unit allows: read from the unit, expanded by systemd itself."""

from __future__ import annotations

import errno
import functools
import subprocess
from dataclasses import dataclass
from pathlib import Path

UNIT = Path(__file__).parents[2] / "deploy/systemd/prefillwatch.service"


@dataclass(frozen=True)
class UnitFilter:
    """``answer`` is the error that other calls fail with; None: they end the process."""

    calls: frozenset[str]
    answer: int | None

    @classmethod
    def of(cls, unit: str) -> UnitFilter:
        """As systemd.exec(5) says: the first line is what is allowed, further ones add to that or take away."""
        lines = values(unit, "SystemCallFilter")
        assert lines, "the unit has no filter"
        assert not lines[0].startswith("~"), "a list of what is forbidden would let any new call through"
        calls = set(expanded("@default"))
        for line in lines:
            named = {call for name in line.removeprefix("~").split() for call in expanded(name)}
            calls = calls - named if line.startswith("~") else calls | named
        answers = values(unit, "SystemCallErrorNumber")
        return cls(frozenset(calls), getattr(errno, answers[-1]) if answers else None)


def values(unit: str, key: str) -> list[str]:
    return [line.partition("=")[2] for line in unit.splitlines() if line.startswith(f"{key}=")]


@functools.cache
def expanded(name: str) -> tuple[str, ...]:
    """The calls of a set such as @resources; a call is a set of one."""
    if not name.startswith("@"):
        return (name,)
    done = subprocess.run(
        ["systemd-analyze", "--no-pager", "syscall-filter", name], capture_output=True, text=True, check=True
    )
    members = [line.strip() for line in done.stdout.splitlines()[1:]]
    return tuple(call for member in members if member and not member.startswith("#") for call in expanded(member))
