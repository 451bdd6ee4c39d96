"""Why a server failed: the one line of its output that tells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

LONGEST_LINE: Final = 300

#: What log lines begin with: the process, the level, date and time, the place in the source.
_PREFIXES: Final = (
    re.compile(r"^\([A-Za-z_]+[^)]*pid=\d+\)\s*"),
    re.compile(r"^(?:ERROR|CRITICAL|WARNING|INFO)[: ]\s*(?:\d\d-\d\d \d\d:\d\d:\d\d )?(?:\[[^\]]*\]\s*)?"),
)
_ERROR: Final = re.compile(
    r"^(?:[\w.]*(?:Error|Exception|Exit|Interrupt)\b.*|.*\berror: .*|error\b.*|fatal\b.*|.*: command not found.*)",
    re.IGNORECASE,
)
#: Lines that only repeat that something else went wrong, or that come at the exit.
_SECONDHAND: Final = re.compile(
    r"see root cause above|EngineDeadError|resource_tracker|leaked \w+ objects", re.IGNORECASE
)
#: The head of a list of reasons; the reason is in the line after it.
_HEADLINE: Final = re.compile(r"\d+ validation errors? for ")


def last_error_line(lines: Sequence[str]) -> str:
    """The last line that reads like an error and is no mere repetition; else the last line; "" when there is none."""
    said = [line for line in map(_bare, lines) if line]
    for position in range(len(said) - 1, -1, -1):
        line = said[position]
        if not _ERROR.match(line) or _SECONDHAND.search(line):
            continue
        if _HEADLINE.search(line) and position + 1 < len(said):
            line = said[position + 1].partition(" [type=")[0]
        return _cut(line)
    return _cut(said[-1]) if said else ""


def _bare(line: str) -> str:
    for prefix in _PREFIXES:
        line = prefix.sub("", line, count=1)
    return line.strip()


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"
