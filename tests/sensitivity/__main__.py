"""Move each constant of the method by 30 % and see what the verdicts on a real engine's recordings make of it.

    python -m tests.sensitivity                    all constants that docs/method.md lists (a quarter of an hour of CPU)
    python -m tests.sensitivity verdict.MOST …     these

A row tells by how much precision, recall, right names, and the share of other causes that were named right, change in
percentage points. Nothing fails here: what the rows are for is to know which constant carries weight.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.docs.worked_example import PAGE, constants
from tests.sensitivity.moved import COUNTED, Figures

MOVES = (0.7, 1.3)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sensitivity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = constants(PAGE.read_text())
    parser.add_argument("names", nargs="*", metavar="MODULE.NAME", help="default: all that docs/method.md lists")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at the same time (default: cores)")
    args = parser.parse_args()
    unknown = set(args.names) - known.keys()
    if unknown:
        parser.error(f"docs/method.md lists no {', '.join(sorted(unknown))}")
    names: Sequence[str] = args.names or list(known)
    with ThreadPoolExecutor(args.jobs) as pool:
        before = pool.submit(score, None, 1.0)
        runs = {(name, move): pool.submit(score, name, move) for name in names for move in MOVES}
        base = before.result()
        print("as it is: " + ", ".join(f"{what} {base[what]:.2f} %" for what in COUNTED), flush=True)
        for (name, move), run in runs.items():
            change = {what: run.result()[what] - base[what] for what in COUNTED}
            told = ", ".join(f"{what} {points:+.2f}" for what, points in change.items() if abs(points) >= 0.005)
            print(f"{name} x {move}: {told or 'no change'}", flush=True)
    return 0


def score(name: str | None, move: float) -> Figures:
    """In a process of its own, since constants are moved there for good."""
    command = [sys.executable, "-m", "tests.sensitivity.moved", *([name, str(move)] if name else [])]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: Figures = json.loads(result.stdout)
    return figures


if __name__ == "__main__":
    sys.exit(main())
