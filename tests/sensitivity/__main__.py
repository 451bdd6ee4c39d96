"""Move each tunable by 30 % and see what the verdicts on a real engine's recordings make of it.

    make sensitivity                                   all tunables, on pieces of seven recordings: ten minutes of CPU
    make sensitivity ARGS="cost.slack clock.…"         these
    make sensitivity ARGS="--whole"                    on all recordings, whole: about an hour of CPU
    make sensitivity ARGS="--write"                    and put the table into docs/sensitivity.md

A row tells by how much precision, recall, right names, and the share of other causes that were named right, change in
percentage points. Nothing fails here: what the rows are for is to know which number carries weight.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.judges.verdicts import Verdicts
from tests.sensitivity import page
from tests.sensitivity.pieces import PIECES, Piece, all_pieces, read

from prefillwatch.analysis.tuning import DEFAULT, sheet

MOVES: Final = (0.7, 1.3)
#: Groups that decide nothing of what is counted here: stalls and whose prompts they were.
NOT_COUNTED: Final = ("advice", "waits", "incidents")
#: Causes that have a name of their own; what else stalled the engine has no right answer.
_OTHERS: Final = ("engine_pause", "frontend", "preemption")


class Figures(NamedTuple):
    """In percent."""

    precision: float
    recall: float
    names: float
    other_causes: float

    def less(self, other: Figures) -> Figures:
        return Figures(*(mine - its for mine, its in zip(self, other, strict=True)))


def score(pieces: Sequence[Piece], name: str, move: float) -> Figures:
    """With one tunable moved."""
    tuning = DEFAULT.moved(name, move) if name else DEFAULT
    total, right, others = Verdicts(), 0.0, 0.0
    for piece in pieces:
        found = piece.judged(tuning)
        total.seconds += found.seconds
        total.wrong_names += found.wrong_names
        right += sum(found.seconds[cause, cause] for cause in _OTHERS)
        others += sum(found.true(cause) for cause in _OTHERS)
    return Figures(*(100 * each for each in (total.precision, total.recall, total.names, right / (others or 1.0))))


_pieces: list[Piece] = []


def _score(job: tuple[str, float]) -> Figures:
    return score(_pieces, *job)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sensitivity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [each.name for each in sheet()]
    parser.add_argument("names", nargs="*", metavar="GROUP.FIELD", help="default: all but advice, waits, incidents")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at the same time (default: cores)")
    parser.add_argument("--whole", action="store_true", help="all recordings, whole")
    parser.add_argument("--write", action="store_true", help="write docs/sensitivity.md")
    args = parser.parse_args()
    unknown = set(args.names) - set(known)
    if unknown:
        parser.error(f"there is no tunable {', '.join(sorted(unknown))}; see prefillwatch/analysis/tuning.py")
    names = args.names or [each for each in known if each.split(".")[0] not in NOT_COUNTED]
    _pieces.extend(all_pieces() if args.whole else [read(name, seconds) for name, seconds in PIECES.items()])
    jobs = [("", 1.0), *((name, move) for name in names for move in MOVES)]
    rows: dict[str, list[str]] = {}
    # Forked, so that the recordings are read once.
    with multiprocessing.get_context("fork").Pool(args.jobs) as pool:
        results = pool.imap(_score, jobs)
        base = next(results)
        as_it_is = page.words(base)
        print(f"as it is: {as_it_is}", flush=True)
        for (name, move), found in zip(jobs[1:], results, strict=True):
            change = page.change(found.less(base))
            rows.setdefault(name, []).append(change)
            print(f"{name} x {move}: {change}", flush=True)
    if args.write:
        page.write(as_it_is, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
