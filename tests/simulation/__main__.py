"""Judge the verdicts by simulated engines that know the truth.

python -m tests.simulation --seeds 260           so many fresh seeds, one run each, a table by row
python -m tests.simulation --first 0 --seeds 26  these
python -m tests.simulation --show 17             one run, stall by stall
python -m tests.simulation --shrink 17           the smallest scene of its worst verdict, as a test
python -m tests.simulation --check               fixed seeds, held against what they came to before (minutes)
python -m tests.simulation --raise tests         … and written down
"""

from __future__ import annotations

import argparse
import random
import sys

from tests.simulation import bars
from tests.simulation.judge import pairs
from tests.simulation.page import PAGE, page, plain
from tests.simulation.play import played, run, scene
from tests.simulation.rows import LONG_ROWS, ROWS, Rows, by_row, row_of
from tests.simulation.shrink import Shrinker, as_test, worst


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=4 * len(ROWS), help="runs (default: four of each row)")
    parser.add_argument("--first", type=int, help="first seed (default: one that was not tried before)")
    parser.add_argument("--show", type=int, metavar="SEED", help="one run, stall by stall")
    parser.add_argument("--shrink", type=int, metavar="SEED", help="its worst verdict, as a test that reads like one")
    parser.add_argument("--minutes", action="store_true", help="the seed is one of those of minutes")
    parser.add_argument("--write", action="store_true", help="write docs/verdicts-measured.md")
    parser.add_argument("--check", action="store_true", help="whether any row is worse than it was")
    parser.add_argument("--raise", dest="fleets", action="append", choices=bars.FLEETS, help="write what was reached")
    parser.add_argument("--anew", action="store_true", help="… also where it is less than before")
    args = parser.parse_args()
    rows = LONG_ROWS if args.minutes else ROWS
    if args.show is not None:
        show(args.show, rows)
        return 0
    if args.shrink is not None:
        return shrink(args.shrink, rows)
    for fleet in map(bars.FLEETS.__getitem__, args.fleets or ()):
        bars.write(fleet, by_row(fleet.seeds, fleet.long_seeds), anew=args.anew)
    if args.fleets:
        return 0
    first = random.SystemRandom().randrange(10**9) if args.first is None else args.first
    seeds = range(first, first + max(args.seeds, 1))
    long_seeds = range(first, first + len(LONG_ROWS) * max(1, args.seeds // (10 * len(ROWS))))
    if args.check:
        seeds, long_seeds = bars.CHECK.seeds, bars.CHECK.long_seeds
        if bars.CHECK not in bars.written():
            print("there are no bars of so many runs yet: --raise check writes them", file=sys.stderr)
            return 2
    print(f"seeds {seeds[0]} to {seeds[-1]}, and of minutes {long_seeds[0]} to {long_seeds[-1]}", flush=True)
    figures = by_row(seeds, long_seeds)
    print(plain(figures))
    if args.write:
        PAGE.write_text(page(figures, seeds, long_seeds))
    worse = list(bars.all_worse(bars.CHECK, figures)) if args.check else []
    print("\n".join(worse))
    return bool(worse)


def show(seed: int, rows: Rows) -> None:
    name = row_of(seed, rows)
    print(f"seed {seed}: {name}")
    judged = run(*rows[name], seed)
    print(judged.learned, *judged.pages)
    for said, true in pairs(judged):
        moment = true or said
        assert moment is not None
        print(
            f"{moment.end / 1000:8.3f} s  {moment.name:14s} {moment.end - moment.start:8.1f} ms  "
            f"true {true.cause if true else '–':13s} said {said.cause if said else 'no stall':13s} "
            f"{dict(sorted(true.culprits.items())) if true else ''} {said.names if said else ''}"
        )


def shrink(seed: int, rows: Rows) -> int:
    row = row_of(seed, rows)
    whole = scene(*rows[row], seed)
    complaint = worst(played(whole))
    if complaint is None:
        print(f"seed {seed}: {row}: nothing is wrong")
        return 0
    shrinker = Shrinker(complaint)
    small = shrinker.shrink(whole)
    print(f"# seed {seed}: {row}: {len(whole.jobs)} requests in {whole.until / 1000:.0f} s became", end=" ")
    print(f"{len(small.jobs)} in {small.until / 1000:.1f} s, after {shrinker.tries} tries")
    print(as_test(small, complaint, f"seed_{seed}"))
    return 1


if __name__ == "__main__":
    sys.exit(main())
