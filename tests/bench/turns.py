"""The same measurement in this checkout and in another, in turns: each side in a process of its own, several times.

`in_turns` is the command line of benchmarks that need no more; what it prints are the medians of all runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import prefillwatch

HERE = Path(prefillwatch.__file__).parent.parent


def in_turns(module: str, measure: Callable[[], dict[str, float]], rounds: int) -> None:
    """Print what ``measure`` of the benchmark ``module`` finds, in milliseconds; with ``--before DIR`` there, too."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout, measured in turns with this one")
    parser.add_argument("--one-side", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one_side:
        print(json.dumps(measure()))
        return
    sides = {"here": HERE} | ({"before": args.before / "exporter"} if args.before else {})
    figures: dict[tuple[str, str], list[float]] = defaultdict(list)
    command = [sys.executable, "-m", module, "--one-side"]
    for side, found in turns({side: (path,) for side, path in sides.items()}, rounds, command):
        for name, value in found.items():
            figures[name, side].append(value)
    for (name, side), values in sorted(figures.items()):
        print(f"{name:<52} {side:<7} {statistics.median(values):8.2f} ms   {min(values):.2f} to {max(values):.2f}")


def turns(
    sides: Mapping[str, Sequence[Path]], rounds: int, command: Sequence[str]
) -> Iterator[tuple[str, dict[str, float]]]:
    """What the command prints, as JSON, with the packages of each side in its path: side after side, round by round."""
    for _, (side, paths) in itertools.product(range(rounds), sides.items()):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
        answer = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE)
        yield side, json.loads(answer.stdout)
