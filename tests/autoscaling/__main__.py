"""Autoscalers compared on simulated fleets.

python -m tests.autoscaling                     every law on every scene, as a table (ten minutes of CPU)
python -m tests.autoscaling --scene chat        … on the scenes with this in their names
python -m tests.autoscaling --law pressure      … by the laws with this in their names; the other figures are kept
python -m tests.autoscaling --write             … and written down in docs/autoscaling.md
python -m tests.autoscaling --words             the page from the figures that are kept
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor

from tests.autoscaling.page import KEPT, LAWS, PAGE, PICTURE, cells, keep, kept, outcome, page, picture, rising
from tests.autoscaling.run import Outcome
from tests.autoscaling.traffic import SCENES


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.autoscaling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scene", default="", help="only scenes with this in their names")
    parser.add_argument("--law", default="", help="only laws with this in their names")
    parser.add_argument("--write", action="store_true", help="keep the figures and write docs/autoscaling.md")
    parser.add_argument("--words", action="store_true", help="write the page from the figures that are kept")
    parser.add_argument("--workers", type=int, help="processes (default: one per core)")
    args = parser.parse_args()
    if not args.words:
        played = play_all(args.scene, args.law, args.workers)
        if args.write:
            found = {(each.scene, each.law): each for each in [*(kept() if KEPT.exists() else []), *played]}
            order = [(scene.name, law) for scene in SCENES for law in LAWS]
            keep([found[each] for each in order if each in found])
    if args.write or args.words:
        PAGE.write_text(page(kept(), rising()))
        PICTURE.write_text(picture(kept()))
    return 0


def play_all(scene: str, law: str, workers: int | None) -> list[Outcome]:
    runs = [(number, each) for number, one in enumerate(SCENES) if scene in one.name for each in LAWS if law in each]
    played = []
    # The longest first: those with a core beside each engine.
    with ProcessPoolExecutor(workers) as pool:
        for each in pool.map(_play, sorted(runs, key=lambda run: not LAWS[run[1]]().watched)):
            print(f"{each.scene:30s}", "  ".join(f"{cell:>10s}" for cell in cells(each)), flush=True)
            played.append(each)
    return played


def _play(run: tuple[int, str]) -> Outcome:
    number, law = run
    return outcome(SCENES[number], law)


if __name__ == "__main__":
    sys.exit(main())
