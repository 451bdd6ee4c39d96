"""What is pinned can be had, whole and unchanged, for the Python of the image."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("lock", ["requirements.lock", "otlp.lock", "build.lock"])
def test_the_pinned_packages_are_there_with_their_hashes(lock: str, tmp_path: Path) -> None:
    """pip asks the registry that is set up here, and installs nothing."""
    (minor,) = re.findall(r"^ARG PYTHON=(\S+)$", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE)
    options = ["--dry-run", "--quiet", "--require-hashes", "--only-binary", ":all:", "--target", str(tmp_path)]
    argv = [sys.executable, "-m", "pip", "install", *options, "--python-version", minor, "-r", f"deploy/{lock}"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
