"""The pinned dependencies of the image, against what the project says that it needs."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib  # the standard library has none yet

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
NEEDED = {
    "requirements.lock": [*PROJECT["project"]["dependencies"], *EXTRAS["gpu"]],
    "otlp.lock": [*PROJECT["project"]["dependencies"], *EXTRAS["gpu"], *EXTRAS["otlp"]],
    "build.lock": PROJECT["build-system"]["requires"],
}


def text(lock: str) -> str:
    return (ROOT / "deploy" / lock).read_text()


def pinned(lock: str) -> dict[str, Version]:
    found = re.findall(r"^([a-zA-Z0-9._-]+)==(\S+)(?: ; .*)? \\\n", text(lock), re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in found}


@pytest.mark.parametrize("lock", NEEDED)
def test_what_the_project_needs_is_pinned_as_it_asks(lock: str) -> None:
    """After a change of pyproject.toml: scripts/lock."""
    versions = pinned(lock)
    for line in NEEDED[lock]:
        wanted = Requirement(line)
        assert versions[canonicalize_name(wanted.name)] in wanted.specifier, f"{line}: run scripts/lock"


@pytest.mark.parametrize("lock", NEEDED)
def test_what_those_need_is_pinned_too(lock: str) -> None:
    """By what the packages say that are installed here."""
    versions = pinned(lock)
    for name in versions:
        for wanted in needed_by(name):
            assert canonicalize_name(wanted.name) in versions, f"{name} needs {wanted}: run scripts/lock"


def needed_by(name: str) -> list[Requirement]:
    """In the image: its Python, Linux, no extras."""
    try:
        lines = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:  # an extra that is not installed here
        return []
    image = {"extra": "", "python_version": "3.13", "python_full_version": "3.13.0", "platform_system": "Linux"}
    wanted = map(Requirement, lines)
    return [each for each in wanted if each.marker is None or each.marker.evaluate(image)]


@pytest.mark.parametrize("lock", NEEDED)
def test_every_line_is_a_version_and_its_hashes(lock: str) -> None:
    """No registry is named: whoever builds uses their own."""
    lines = [line for line in text(lock).splitlines() if not line.startswith("#")]
    assert not [
        line for line in lines if not re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?|[\w.-]+==\S+.* \\", line)
    ]
    assert "://" not in text(lock)
    assert len(pinned(lock)) == sum("==" in line for line in lines)
