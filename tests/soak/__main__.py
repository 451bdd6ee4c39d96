"""Minutes of everything at once: thousands of streams that come and go, readers that are slow, clients that leave at
every stage, uploads, a bad way to upstream, and every process stopped or ended in turn.

    python -m tests.soak                        ten minutes with 2,000 streams
    python -m tests.soak --minutes 2            the short form: every fault once
    python -m tests.soak --seed 7               other plans; the seed is printed

What must hold: no token is lost or made up, no answer that broke off ends as if it were whole, whoever is not hit by a
fault notices nothing, descriptors and memory do not rise, and the books are equal to what the clients counted.
No timing is judged.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import sys
import tempfile
from pathlib import Path

from tests.soak.run import Soak
from tests.soak.stage import SoakError


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long, at least (default 10)")
    parser.add_argument("--streams", type=int, default=2000, help="clients at any time (default 2000)")
    parser.add_argument("--seed", type=int, default=1, help="of the plans (default 1)")
    args = parser.parse_args()
    say = functools.partial(print, flush=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak = Soak(Path(folder), args.seed, args.streams, say)
        try:
            wrong = asyncio.run(soak.run(args.minutes * 60))
        except SoakError as error:
            wrong = [str(error)]
        if wrong:
            say(soak.log_end())
    for line in wrong:
        say(f"WRONG: {line}")
    say(f"soak: {'failed' if wrong else 'passed'}, seed {args.seed}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
