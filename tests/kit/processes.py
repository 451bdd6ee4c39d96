"""What a test asks of a process that it may not be the parent of."""

from __future__ import annotations

from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether it still runs. One that has ended stays in /proc until its parent takes notice: in a container whose
    first process never does, an orphan stays there for good."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
