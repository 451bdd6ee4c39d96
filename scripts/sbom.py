#!/usr/bin/env python3
"""What is in the image, as CycloneDX: scripts/sbom.py ROOT [NAME] > sbom.cdx.json

ROOT is a folder that the image is mounted at (`podman image mount`, or a root that it was unpacked to). Listed are
Debian's packages and Python's distributions, with versions, licences as far as they say them, and addresses by which
scanners know them. Nothing in it depends on when or where it was made.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import quote


def main() -> None:
    root, name = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "prefillwatch"
    components = sorted([*debian(root), *python(root)], key=lambda each: each["bom-ref"])
    ours = next((each["version"] for each in components if each["bom-ref"].startswith("pkg:pypi/prefillwatch@")), "")
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": "image", "name": name, "version": ours}},
        "components": components,
    }
    print(json.dumps(document, indent=1))


def debian(root: Path) -> Iterator[dict[str, Any]]:
    """Installed packages, from dpkg's own account."""
    status = root / "var/lib/dpkg/status"
    if not status.exists():
        return
    release = (
        dict(line.split("=", 1) for line in (root / "etc/os-release").read_text().splitlines() if "=" in line)
        .get("VERSION_ID", "")
        .strip('"')
    )
    for stanza in status.read_text().split("\n\n"):
        package = HeaderParser().parsestr(stanza)
        if not str(package.get("Status", "")).endswith(" installed"):
            continue
        name, version, machine = (str(package[field]) for field in ("Package", "Version", "Architecture"))
        distro = f"&distro=debian-{release}" if release else ""
        yield component(f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?arch={machine}{distro}", name, version)


def python(root: Path) -> Iterator[dict[str, Any]]:
    """Distributions in every environment that the image has."""
    for metadata in sorted(root.glob("opt/*/lib/python*/site-packages/*.dist-info/METADATA")):
        package = HeaderParser().parsestr(metadata.read_text())
        name, version = str(package["Name"]), str(package["Version"])
        licence = package.get("License-Expression")
        kept = {"licenses": [{"expression": str(licence)}]} if licence else {}
        plain = name.lower().replace("_", "-").replace(".", "-")
        yield component(f"pkg:pypi/{plain}@{quote(version)}", name, version) | kept


def component(address: str, name: str, version: str) -> dict[str, Any]:
    return {"type": "library", "bom-ref": address, "name": name, "version": version, "purl": address}


if __name__ == "__main__":
    main()
