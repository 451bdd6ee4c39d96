"""Programs that come as wheels with the development dependencies, so that no test has to do without them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]


class RefusedError(Exception):
    """A program was not content; holds what it said."""


def run(program: str, *arguments: str | Path) -> str:
    """What a program beside our Python says on stdout. Raises RefusedError."""
    path = Path(sys.executable).parent / program
    assert path.exists(), f"{program} is missing; it comes with: pip install --group dev"
    done = subprocess.run([path, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RefusedError(done.stdout + done.stderr)
    return done.stdout


def kustomized(folder: Path) -> list[Object]:
    """The objects that the folder's kustomization makes. Raises RefusedError."""
    return list(yaml.safe_load_all(run("kubectl", "kustomize", folder)))
