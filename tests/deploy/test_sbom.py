"""The bill of materials, from a root that the test made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SBOM = Path(__file__).parents[2] / "scripts/sbom.py"
STATUS = """Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.41-12+deb13u1
Description: a library
 with a second line

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1.0
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "var/lib/dpkg/status": STATUS,
        "etc/os-release": 'NAME="Debian"\nVERSION_ID="13"\n',
        "opt/x/lib/python3.13/site-packages/typing_extensions-4.16.0.dist-info/METADATA": (
            "Metadata-Version: 2.4\nName: typing_extensions\nVersion: 4.16.0\nLicense-Expression: PSF-2.0\n\nlong text"
        ),
        "opt/x/lib/python3.13/site-packages/prefillwatch-0.1.0.dist-info/METADATA": (
            "Metadata-Version: 2.4\nName: prefillwatch\nVersion: 0.1.0\n"
        ),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def bill(root: Path) -> dict[str, Any]:
    done = subprocess.run([sys.executable, str(SBOM), str(root)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_it_has_what_is_installed_by_the_names_that_scanners_know(root: Path) -> None:
    assert [each["purl"] for each in bill(root)["components"]] == [
        "pkg:deb/debian/libc6@2.41-12%2Bdeb13u1?arch=amd64&distro=debian-13",
        "pkg:pypi/prefillwatch@0.1.0",
        "pkg:pypi/typing-extensions@4.16.0",
    ]


def test_it_says_what_it_is_the_bill_of(root: Path) -> None:
    assert bill(root)["metadata"]["component"] == {
        "type": "container",
        "bom-ref": "image",
        "name": "prefillwatch",
        "version": "0.1.0",
    }


def test_licences_are_told_as_far_as_they_are_known(root: Path) -> None:
    licences = {each["name"]: each.get("licenses") for each in bill(root)["components"]}
    assert licences["typing_extensions"] == [{"expression": "PSF-2.0"}]
    assert licences["libc6"] is None


def test_it_depends_on_nothing_but_the_root(root: Path) -> None:
    assert bill(root) == bill(root)


def test_a_base_that_is_no_debian_has_python_alone(root: Path) -> None:
    (root / "var/lib/dpkg/status").unlink()
    assert len(bill(root)["components"]) == 2
