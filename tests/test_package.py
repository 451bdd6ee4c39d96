"""What is shipped: the README says what the code says, the wheel holds the assets, `python -m` works."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from prefillwatch import __version__
from prefillwatch.commands.assets import FOLDERS, LEFT_OUT, asset_paths

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("script", ["reference.py", "security_tables.py"])
def test_the_tables_of_the_pages_are_what_the_code_says(script: str) -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "scripts" / script, "--check"], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_python_m_is_the_command() -> None:
    shown = subprocess.run([sys.executable, "-m", "prefillwatch", "--version"], capture_output=True, check=True)
    assert shown.stdout.decode() == f"prefillwatch {__version__}\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """A wheel of this tree, built by the backend itself: no network, no environment of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    (built,) = folder.glob("prefillwatch-*.whl")
    return zipfile.Path(built)


def test_the_wheel_holds_the_package_and_what_assets_writes(wheel: zipfile.Path) -> None:
    names = {name for name in wheel.root.namelist() if not name.endswith("/")}
    prefix = "prefillwatch/_assets/"
    assert {name.removeprefix(prefix) for name in names if name.startswith(prefix)} == set(map(str, asset_paths(ROOT)))
    assert not [name for name in names if name.removeprefix(prefix).startswith(LEFT_OUT)]
    assert {"prefillwatch/py.typed", "prefillwatch/cli.py"} <= names
    assert not [name for name in names if name.startswith(("tests/", "exporter/"))]


def test_assets_are_found_in_the_wheel_as_installed(wheel: zipfile.Path, tmp_path: Path) -> None:
    wheel.root.extractall(tmp_path / "site")
    command = [sys.executable, "-m", "prefillwatch", "assets", str(tmp_path / "out")]
    environment = {"PYTHONPATH": str(tmp_path / "site"), "PATH": "/usr/bin:/bin"}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(FOLDERS)


def test_the_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_version_is_one() -> None:
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text()
