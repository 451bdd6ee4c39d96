"""What Linux tells of our own processes: CPU time, time waited for a core, resident memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    cpu_seconds: float  # user and system, all threads
    core_wait_seconds: float  # ready to run, but no core was free
    resident_bytes: int


def read_process(pid: int, root: Path = Path("/proc")) -> ProcessFigures | None:
    """None when the process is gone, or where /proc does not tell."""
    try:
        on_core = waited = 0
        for task in (root / str(pid) / "task").iterdir():
            fields = (task / "schedstat").read_text().split()
            on_core += int(fields[0])
            waited += int(fields[1])
        pages = int((root / str(pid) / "statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return ProcessFigures(on_core / 1e9, waited / 1e9, pages * _PAGE_BYTES)
