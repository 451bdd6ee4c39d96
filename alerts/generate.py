"""Write everything that is made from source.yml: python -m alerts.generate (in the folder that holds alerts/)

--check says whether the files are up to date and writes nothing. --out DIR with --scale FACTOR writes the rule files
alone, with every time multiplied, for a test that cannot wait minutes. --tests DIR writes the rules and their unit
tests, filled in: promtool test rules DIR/tests/*.yml.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from alerts.rulebook.documents import documents, rule_file, rule_files, unit_tests
from alerts.rulebook.groups import files
from alerts.rulebook.source import SOURCE, Source, load

FOLDER = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=SOURCE, help="another source file")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a file is not what would be written")
    parser.add_argument("--out", type=Path, help="write the rule files alone, to this folder")
    parser.add_argument("--tests", type=Path, help="write the rules and their unit tests to this folder")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply every time (with --out)")
    options = parser.parse_args()
    if options.scale != 1.0 and options.out is None:
        parser.error("--scale needs --out: the files in alerts/ have the times of the source")
    source = load(options.source).scaled(options.scale)
    if options.out is not None:
        write_rules(source, options.out)
        return 0
    if options.tests is not None:
        write({**rule_files(source), **unit_tests(source, FOLDER / "tests")}, options.tests)
        return 0
    if options.check:
        return _check(source)
    write(documents(source), FOLDER)
    return 0


def write_rules(source: Source, folder: Path) -> list[Path]:
    """The plain rule files, for a Prometheus of one's own."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for stem, groups in files(source).items():
        paths.append(folder / f"{stem}.yml")
        paths[-1].write_text(rule_file(source, groups), encoding="utf-8")
    return paths


def write(texts: dict[str, str], folder: Path) -> None:
    """Files by their names below the folder."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _check(source: Source) -> int:
    stale = [name for name, text in documents(source).items() if _read(FOLDER / name) != text]
    for name in stale:
        sys.stderr.write(f"alerts/{name} is not up to date; run python -m alerts.generate\n")
    return 1 if stale else 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
