"""A control group of our own: what is started in it, how much memory that takes, and that all of it has ended."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from pathlib import Path

PATIENCE_S = 10.0
_count = itertools.count()


class ControlGroup:
    """One folder in each hierarchy that the kernel has, for version 1 and 2 of control groups alike."""

    def __init__(self) -> None:
        name = f"prefillwatch-{os.getpid()}-{next(_count)}"
        self._folders = [hierarchy / name for hierarchy in _hierarchies()]
        assert self._folders, "no control groups are mounted here"
        for folder in self._folders:
            folder.mkdir()

    @property
    def folders(self) -> list[str]:
        """Where a process enters it."""
        return list(map(str, self._folders))

    def limit_memory(self, size: int) -> None:
        self._file("memory.limit_in_bytes", "memory.max").write_text(str(size))

    @property
    def peak_memory(self) -> int:
        return int(self._file("memory.max_usage_in_bytes", "memory.peak").read_text())

    @property
    def killed(self) -> int:
        """How many processes the kernel has killed for their memory."""
        lines = self._file("memory.oom_control", "memory.events").read_text().splitlines()
        return next(int(count) for name, count in map(str.split, lines) if name == "oom_kill")

    @property
    def processes(self) -> list[int]:
        """What runs in it, or in a group inside it."""
        return [int(line) for group in self._folders[-1].rglob("cgroup.procs") for line in group.read_text().split()]

    def close(self) -> None:
        """Fails when something still runs in it, and goes on doing so."""
        for folder in self._folders:
            for inner in sorted(folder.rglob("*"), reverse=True):
                if inner.is_dir():
                    _remove(inner)
            _remove(folder)

    def find(self, inner: str, *names: str) -> list[Path]:
        """Files of a group inside this one that are there, whatever the version calls them."""
        paths = [folder / inner / name for folder in self._folders for name in names]
        return [path for path in paths if path.exists()]

    def _file(self, *names: str) -> Path:
        found = self.find("", *names)
        assert found, "the memory controller is not available here"
        return found[0]


def _hierarchies() -> list[Path]:
    """Where they are mounted; cpuset of version 1 takes nobody in before it is told which cores."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    found = [(Path(fields[1]), fields[2], fields[3]) for fields in mounts if fields[2] in ("cgroup", "cgroup2")]
    return [place for place, _, options in found if "cpuset" not in options.split(",")]


def _remove(folder: Path) -> None:
    """The kernel counts a process in for a moment after its end."""
    deadline = time.monotonic() + PATIENCE_S
    while folder.exists():
        with contextlib.suppress(OSError):
            folder.rmdir()
        if folder.exists():
            assert time.monotonic() < deadline, f"something still runs in {folder}"
            time.sleep(0.02)
