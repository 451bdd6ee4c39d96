"""Judge the verdicts by simulated engines that know the truth.

python -m tests.simulation --seeds 260           so many fresh seeds, one run each, a table by row
python -m tests.simulation --first 0 --seeds 26  these
python -m tests.simulation --show 17             one run, stall by stall
python -m tests.simulation --check               fixed seeds, held against what they came to before (minutes)
python -m tests.simulation --raise [--anew]      … and written down
"""

from __future__ import annotations

import argparse
import random
import sys

from tests.simulation import bars
from tests.simulation.judge import pairs
from tests.simulation.page import PAGE, page, plain
from tests.simulation.play import run
from tests.simulation.rows import ROWS, by_row, row_of


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=4 * len(ROWS), help="runs (default: four of each row)")
    parser.add_argument("--first", type=int, help="first seed (default: one that was not tried before)")
    parser.add_argument("--show", type=int, metavar="SEED", help="one run, stall by stall")
    parser.add_argument("--write", action="store_true", help="write docs/verdicts-measured.md")
    parser.add_argument("--check", action="store_true", help="whether any row is worse than it was")
    parser.add_argument("--raise", dest="raises", action="store_true", help="write what was reached as bars")
    parser.add_argument("--anew", action="store_true", help="… also where it is less than before")
    args = parser.parse_args()
    if args.show is not None:
        show(args.show)
        return 0
    if args.raises:
        for fleet in bars.FLEETS:
            bars.write(fleet, by_row(range(fleet.seeds)), anew=args.anew)
        return 0
    first = random.SystemRandom().randrange(10**9) if args.first is None else args.first
    seeds = range(bars.CHECK.seeds) if args.check else range(first, first + max(args.seeds, 1))
    print(f"seeds {seeds[0]} to {seeds[-1]}", flush=True)
    figures = by_row(seeds)
    print(plain({name: each for name, each in figures.items() if each.total}))
    if args.write:
        PAGE.write_text(page(figures, seeds))
    worse = list(bars.all_worse(bars.CHECK, figures)) if args.check else []
    print("\n".join(worse))
    return bool(worse)


def show(seed: int) -> None:
    name = row_of(seed)
    print(f"seed {seed}: {name}")
    for said, true in pairs(run(*ROWS[name], seed)):
        moment = true or said
        assert moment is not None
        print(
            f"{moment.end / 1000:8.3f} s  {moment.name:14s} {moment.end - moment.start:8.1f} ms  "
            f"true {true.cause if true else '–':13s} said {said.cause if said else 'no stall':13s} "
            f"{dict(sorted(true.culprits.items())) if true else ''} {said.names if said else ''}"
        )


if __name__ == "__main__":
    sys.exit(main())
