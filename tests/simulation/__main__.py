"""Judge the verdicts by simulated engines that know the truth.

python -m tests.simulation --seeds 260           so many fresh seeds, one run each, a table by row
python -m tests.simulation --first 0 --seeds 26  these
python -m tests.simulation --show 17             one run, stall by stall
"""

from __future__ import annotations

import argparse
import random

from tests.simulation.judge import pairs
from tests.simulation.page import PAGE, page, plain
from tests.simulation.play import run
from tests.simulation.rows import ROWS, by_row, row_of


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=4 * len(ROWS), help="runs (default: four of each row)")
    parser.add_argument("--first", type=int, help="first seed (default: one that was not tried before)")
    parser.add_argument("--show", type=int, metavar="SEED", help="one run, stall by stall")
    parser.add_argument("--write", action="store_true", help="write docs/verdicts-measured.md")
    args = parser.parse_args()
    if args.show is not None:
        show(args.show)
        return
    first = random.SystemRandom().randrange(10**9) if args.first is None else args.first
    seeds = range(first, first + max(args.seeds, 1))
    print(f"seeds {seeds[0]} to {seeds[-1]}", flush=True)
    figures = {name: each for name, each in by_row(seeds).items() if each.total}
    print(plain(figures))
    if args.write:
        PAGE.write_text(page(figures, seeds))


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
    main()
