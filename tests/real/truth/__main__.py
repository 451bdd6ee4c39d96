"""Play scenarios, judge them and print what came out.

.venv/bin/python -m tests.real.truth [--out DIR] [SCENARIO ...]
.venv/bin/python -m tests.real.truth --again [--out DIR] [SCENARIO ...]     # judge what was played before
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tests.real.truth.outcome import Outcome, judge, report_json, report_text
from tests.real.truth.scenarios import BY_NAME, SCENARIOS
from tests.real.truth.suite import own_engine, play_all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(".cache/truth"), help="folder for recordings and the report")
    parser.add_argument("--again", action="store_true", help="judge what is in that folder, play nothing")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(BY_NAME)}")
    args = parser.parse_args()
    if unknown := set(args.scenarios) - set(BY_NAME):
        parser.error(f"no scenario named {', '.join(sorted(unknown))}; there are {', '.join(BY_NAME)}")
    names = args.scenarios or [each.name for each in SCENARIOS]
    outcomes = played_before(names, args.out) if args.again else played(names, args.out)
    (args.out / "report.json").write_text(json.dumps(report_json(outcomes), indent=1))
    print(report_text(outcomes))


def played(names: list[str], out: Path) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for take in play_all([BY_NAME[name] for name in names], own_engine, out):
        outcomes.append(judge(BY_NAME[take.scenario], take.recording, outcomes))
        print(report_text(outcomes[-1:]), flush=True)
    return outcomes


def played_before(names: list[str], out: Path) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for name in names:
        if (path := out / f"{name}.jsonl.gz").exists():
            outcomes.append(judge(BY_NAME[name], path, outcomes))
    return outcomes


if __name__ == "__main__":
    main()
