"""The kit itself: what it waits for, what a pure test may not do, and that its page names what there is."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kit.eventually import eventually, soon

TESTS = Path(__file__).parents[1]
PAGE = (TESTS / "kit/README.md").read_text()
IMPURE = {
    "a process": "import subprocess, sys; subprocess.run([sys.executable, '-c', ''])",
    "a socket": "import socket; socket.socket().bind(('127.0.0.1', 0))",
}


def test_it_waits_until_there_is_a_value_and_gives_it() -> None:
    values = iter(["", None, "here"])
    assert eventually(lambda: next(values)) == "here"
    more = iter([0, 0, 3])
    assert asyncio.run(soon(lambda: next(more))) == 3


def test_what_does_not_happen_is_told_in_words_that_are_made_then() -> None:
    with pytest.raises(AssertionError, match=r"^nobody came \(within 0 s\)$"):
        eventually(lambda: False, "nobody came", patience_s=0)
    with pytest.raises(AssertionError, match="the log"):
        asyncio.run(soon(lambda: False, lambda: "the log", patience_s=0))


@pytest.mark.parametrize("name", re.findall(r"`([a-z_/]+/(?:[a-z_]+\.py)?)`", PAGE))
def test_the_page_names_what_there_is(name: str) -> None:
    assert (TESTS / name).exists()


@pytest.mark.parametrize("what", IMPURE)
def test_a_pure_test_that_takes_more_than_it_may_fails(tmp_path: Path, what: str) -> None:
    (tmp_path / "test_it.py").write_text(f"def test_it():\n    {IMPURE[what]}\n")
    options = ["-q", "-p", "tests.kit.pure", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=TESTS.parent, capture_output=True, text=True, check=False
    )
    assert found.returncode == 1, found.stdout + found.stderr
    assert "in a pure test: mark it `apart`" in found.stdout
