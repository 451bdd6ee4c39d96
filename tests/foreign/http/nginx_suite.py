"""nginx's own tests, first of nginx alone and then with relays before it: what fails only behind us, and why.

    python -m tests.foreign.http.nginx_suite PATH-OF-NGINX-TESTS [FILE.t …]

The exit code is 1 if a sub-test fails behind us and :mod:`.nginx_differences` gives no reason for it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.foreign.http.nginx_differences import DIFFERENCES, KINDS

STANDINS = Path(__file__).parent / "standins"
REPOSITORY = Path(__file__).parents[3]
#: These speak something else than HTTP/1 to nginx, in every file.
ELSEWHERE = ("h2", "h3", "mail", "quic", "stream")
FILE_S = 200.0
#: What depends on time may fail once on a busy machine.
TRIES = 2

_LINE = re.compile(r"^(not )?ok (\d+)(?: - (.*?))?(?: # (?:TODO|skip)(.*))?$", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True)
class Point:
    """One sub-test. ``excused``: it was skipped, or nobody expects it to pass yet."""

    passed: bool
    name: str
    excused: bool


@dataclass(frozen=True)
class Difference:
    """A sub-test that passes with nginx alone and not behind us; of no kind where no reason is known."""

    file: str
    number: int
    name: str
    kind: str | None


def points(output: str) -> dict[int, Point]:
    """The sub-tests in what a test file printed, by number."""
    return {
        int(found[2]): Point(not found[1], found[3] or "", found[4] is not None) for found in _LINE.finditer(output)
    }


def differences(file: str, alone: dict[int, Point], behind: dict[int, Point]) -> Iterator[Difference]:
    for number, point in alone.items():
        if point.passed and not point.excused and not (number in behind and behind[number].passed):
            yield Difference(file, number, point.name, kind_of(file, point.name))


def kind_of(file: str, name: str) -> str | None:
    for pattern, kind in DIFFERENCES.get(file, ()):
        if re.fullmatch(pattern, name):
            return kind
    return None


def run(suite: Path, file: str, *, bare: bool) -> tuple[dict[int, Point], str]:
    """The sub-tests of one file, and what they complained about."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TEST_NGINX_BINARY": str(STANDINS / "nginx"),
        "PERL5LIB": str(STANDINS / "perl"),
        "PERL5OPT": "-MLinesEndWithCRLF",
        "PYTHONPATH": str(REPOSITORY),
    }
    if os.getuid() == 0:  # its workers would be somebody who cannot read the folder of the test
        environment["TEST_NGINX_GLOBALS"] = "user root;"
    if bare:
        environment["NGINX_BARE"] = "1"
    with tempfile.TemporaryFile("w+", errors="replace") as output, tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(["perl", file], cwd=suite, env=environment, stdout=output, stderr=complaints)
        try:
            process.wait(FILE_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
        output.seek(0)
        complaints.seek(0)
        return points(output.read()), complaints.read()


def judge(suite: Path, file: str) -> tuple[int, list[Difference], str]:
    """How many sub-tests pass with nginx alone, which of them fail behind us, and what was said then."""
    alone, _ = run(suite, file, bare=True)
    passed = sum(point.passed and not point.excused for point in alone.values())
    found: list[Difference] = []
    complaints = ""
    for _ in range(TRIES if passed else 0):
        behind, complaints = run(suite, file, bare=False)
        found = list(differences(file, alone, behind))
        if all(difference.kind for difference in found):
            break
    return passed, found, complaints


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", type=Path, help="a checkout of https://github.com/nginx/nginx-tests")
    parser.add_argument("files", nargs="*", help="only these of its files")
    parser.add_argument("--verbose", action="store_true", help="print what failing sub-tests say")
    chosen = parser.parse_args()
    if not (chosen.suite / "lib/Test/Nginx.pm").exists():
        sys.stderr.write(f"no nginx-tests in {chosen.suite}: git clone https://github.com/nginx/nginx-tests\n")
        return 2
    files = chosen.files or sorted(
        path.name for path in chosen.suite.glob("*.t") if path.name.split("_")[0].removesuffix(".t") not in ELSEWHERE
    )
    ran = passed = 0
    found: list[Difference] = []
    for file in files:
        count, of_file, complaints = judge(chosen.suite, file)
        ran += count > 0
        passed += count
        found += of_file
        for difference in of_file:
            print(f"{file} {difference.number} {difference.name}: {difference.kind or 'NO REASON KNOWN'}", flush=True)
        if of_file and (chosen.verbose or not all(difference.kind for difference in of_file)):
            print(complaints, flush=True)
    by_kind = Counter(difference.kind for difference in found)
    print(f"\n{ran} files, {passed} sub-tests pass with nginx alone; {len(found)} of them fail behind prefillwatch")
    for kind, count in by_kind.most_common():
        print(f"{count:6d}  {KINDS[kind] if kind else 'no reason known'}")
    return 1 if by_kind[None] else 0


if __name__ == "__main__":
    sys.exit(main())
