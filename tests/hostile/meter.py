"""What an attack costs each process of a sidecar, by the kernel's own account."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench.procstat import cpu_ns, with_descendants

ROLES = ("relay", "observer", "supervisor")
#: What the reference loop takes on the machine for which the budgets are stated: one core of a cloud server.
REFERENCE_S = 0.0085
_LOOPS = 200_000


@dataclass(frozen=True)
class Reading:
    """CPU time, resident memory and its peak since `start_of_peak`, and descriptors, of the processes of one role."""

    cpu_ns: int
    rss: int
    peak: int
    descriptors: int


def processes(supervisor: int) -> dict[str, list[int]]:
    """Pids by role; whatever a process starts for itself counts as its own."""
    found: dict[str, list[int]] = {role: [] for role in ROLES}
    found["supervisor"] = [supervisor]
    for child in with_descendants(supervisor)[1:]:
        line = _read(child, "cmdline").replace("\0", " ")
        parent = int((_read(child, "stat").rpartition(")")[2].split() or ["0", "0"])[1])
        role = next((role for role in ROLES if f"prefillwatch.{role}" in line), None)
        role = role or next((known for known, pids in found.items() if parent in pids), "supervisor")
        found[role].append(child)
    return found


def read(pids: list[int]) -> Reading:
    peak, rss, descriptors = 0, 0, 0
    for pid in pids:
        status = dict(line.split(":", 1) for line in _read(pid, "status").splitlines() if ":" in line)
        peak += _kib(status.get("VmHWM", ""))
        rss += _kib(status.get("VmRSS", ""))
        with contextlib.suppress(OSError):
            descriptors += len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Reading(cpu_ns(pid for pid in pids if Path(f"/proc/{pid}/task").exists()), rss, peak, descriptors)


def start_of_peak(pids: list[int]) -> None:
    """From here on the peak is that of what follows."""
    for pid in pids:
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def slowness() -> float:
    """How much more CPU time this core needs for the same Python work than the one the budgets are stated for; 1 or
    more. Frequency, caches and the neighbour on the same core are in it, as they are in what is measured."""
    least = min(_reference() for _ in range(3))
    return max(1.0, least / REFERENCE_S)


def _reference() -> float:
    begun = time.thread_time()
    total = 0
    for number in range(_LOOPS):
        total += number & 7
    return time.thread_time() - begun


def _kib(text: str) -> int:
    return int(text.split()[0]) * 1024 if text.strip() else 0


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""
