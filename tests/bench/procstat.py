"""What the kernel says about processes: CPU time to the nanosecond, memory, descendants."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path


def with_descendants(pid: int) -> list[int]:
    """`pid` and everything below it."""
    return [pid, *_descendants(pid)]


def _descendants(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from with_descendants(int(child))


def cpu_ns(pids: Iterable[int]) -> int:
    """Nanoseconds on a CPU (user and system) of all threads of `pids`, from schedstat: `stat` counts ticks only."""
    return sum(_task_ns(task) for pid in pids for task in Path(f"/proc/{pid}/task").iterdir())


def _task_ns(task: Path) -> int:
    try:
        return int((task / "schedstat").read_text().split()[0])
    except OSError:  # the thread ended between listing and reading
        return 0


def anonymous_rss_bytes(pids: Iterable[int]) -> int:
    """Resident memory that is the processes' own: not the files they have mapped, not the kernel's socket buffers."""
    return sum(_status_kib(pid, "RssAnon:") * 1024 for pid in pids)


def _status_kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    return 0


def go_first(pid: int, priority: int = 2) -> None:
    """Let every thread that `pid` has now go before all ordinary work on its core, and before a lower `priority`.

    What else happens on the machine then hardly shows in the figures. Threads made later inherit it. Without the right
    to do so, nothing is changed.
    """
    for task in _tasks(pid):
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.sched_setscheduler(task, os.SCHED_RR, os.sched_param(priority))


def pin(pid: int, core: int) -> None:
    """Bind every thread that `pid` has now to one core; threads made later inherit it."""
    for task in _tasks(pid):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(task, {core})


def _tasks(pid: int) -> list[int]:
    return [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
