"""The C programs that make and take the load, compiled on first use into the ignored cache folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = ROOT / ".cache" / "bench"
SOURCES = HERE / "native"


class BenchError(Exception):
    """The benchmark cannot go on; the message says what is missing or what went wrong."""


def program(name: str) -> str:
    """Path of the compiled program `name`, built anew when its source or the shared header is newer."""
    source, header, target = SOURCES / f"{name}.c", SOURCES / "net.h", CACHE / name
    newest = max(source.stat().st_mtime, header.stat().st_mtime)
    if not target.exists() or target.stat().st_mtime < newest:
        build(source, target)
    return str(target)


def build(source: Path, target: Path) -> None:
    compiler = need("gcc", "apt-get install gcc")
    CACHE.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(target), str(source)]
    if subprocess.run(command, check=False).returncode:
        raise BenchError(f"{source} does not compile")


def need(command: str, remedy: str) -> str:
    """Path of an installed command, also where daemons live; an error with the remedy when there is none."""
    found = shutil.which(command, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise BenchError(f"{command} is not installed; get it with: {remedy}")
    return found
