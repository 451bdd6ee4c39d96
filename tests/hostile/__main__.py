"""The table of attacks with what was measured: `python -m tests.hostile [-k PART OF A NAME] [--json F] [--page F]`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.hostile.attack import MIB, Result, judge
from tests.hostile.meter import ROLES
from tests.hostile.page import with_attacks
from tests.hostile.table import GROUPS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("-k", default="", help="only attacks whose group or name has this in it")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--page", type=Path, help="put the worst figures of each group into this page")
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    rows = []
    print(_line("attack", "sent", "held up", *(f"{role} µs/B" for role in ROLES), *(f"{role} MiB" for role in ROLES)))
    for group in GROUPS:
        wanted = [attack for attack in group.rows if arguments.k in f"{group.name}: {attack.name}"]
        if not wanted:
            continue
        with group.start() as place:
            for attack in wanted:
                begun = time.monotonic()
                result = judge(place, attack)
                print(_told(result), f"  {time.monotonic() - begun:5.1f} s", flush=True)
                for problem in result.problems():
                    print(f"      ✗ {problem}", flush=True)
                rows.append(result.row())
                results.setdefault(group.name, []).append(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    if arguments.page:
        arguments.page.write_text(with_attacks(arguments.page.read_text(), results))
    bad = sum(bool(row["problems"]) for row in rows)
    print(f"{len(rows)} attacks, {bad} of them beyond their bounds")
    return 1 if bad else 0


def _told(result: Result) -> str:
    return _line(
        result.attack.name,
        str(result.sent),
        f"{result.held_up_s * 1e3:.0f} ms",
        *(f"{result.cpu_us_per_byte(role):.3f}" for role in ROLES),
        *(f"{result.memory(role) / MIB:.1f}" for role in ROLES),
    )


def _line(name: str, *figures: str) -> str:
    return f"{name[:64]:64} " + " ".join(f"{figure:>11.11}" for figure in figures)


if __name__ == "__main__":
    sys.exit(main())
