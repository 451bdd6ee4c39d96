"""What a container's image holds: our wheel and what it needs in /opt/prefillwatch, a Python, the C library."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = "/opt/prefillwatch/bin/prefillwatch"
_PYTHON = "/opt/python"
_DEPENDENCIES = "/opt/dependencies"
#: A Python that was built with a library of its own would find that of the system.
ENVIRONMENT = {"PATH": "/opt/prefillwatch/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": f"{_PYTHON}/lib"}
_MERGED = ("bin", "sbin", "lib", "lib64", "lib32", "libx32")
_DEVICES = ("null", "zero", "full", "random", "urandom")

#: (what, where, type, options), as the launcher takes them.
Mount = tuple[str, str, str, str]


class Image:
    """Made once, in a folder; shown in the root of every sandbox."""

    def __init__(self, folder: Path) -> None:
        self._opt = folder / "prefillwatch"
        minor = f"python3.{sys.version_info.minor}"
        packages = self._opt / "lib" / minor / "site-packages"
        packages.mkdir(parents=True)
        with zipfile.ZipFile(_wheel(folder)) as wheel:
            wheel.extractall(packages)
        (packages / "dependencies.pth").write_text(f"{_DEPENDENCIES}\n")
        (self._opt / "pyvenv.cfg").write_text(f"home = {_PYTHON}/bin\ninclude-system-site-packages = false\n")
        programs = self._opt / "bin"
        programs.mkdir()
        (programs / "python").symlink_to(f"{_PYTHON}/bin/{minor}")
        (programs / "prefillwatch").write_text(
            f"#!{Path(PROGRAM).with_name('python')}\nfrom prefillwatch.cli import main\n\nmain()\n"
        )
        (programs / "prefillwatch").chmod(0o755)

    def mounts(self) -> list[Mount]:
        """Without any place to write, and without /etc."""
        shown = [
            ("/usr", "/usr"),
            (sys.base_prefix, _PYTHON),
            (str(self._opt), "/opt/prefillwatch"),
            (sysconfig.get_path("purelib"), _DEPENDENCIES),
        ]
        binds: list[Mount] = [(what, where, "bind", "ro") for what, where in shown]
        binds += [(f"/dev/{name}", f"/dev/{name}", "bind", "") for name in _DEVICES]
        for name in _MERGED:
            place = Path("/", name)
            if place.is_symlink():
                binds.append((str(place.readlink()), f"/{name}", "link", ""))
            elif place.is_dir():
                binds.append((f"/{name}", f"/{name}", "bind", "ro"))
        return binds


def _wheel(folder: Path) -> Path:
    arguments = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel
