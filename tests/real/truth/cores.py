"""For how long processes were kept waiting for a core: what they did late then is the machine's fault.

Linux tells it in /proc/PID/task/TID/schedstat: nanoseconds on a core, nanoseconds waiting for one.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.real.engine import descendants, process_name
from tests.real.served import Server
from tests.real.sidecar import Sidecar

INTERVAL_SECONDS = 0.05
Sample = tuple[int, dict[str, int]]


def main_threads(engine: Server, sidecar: Sidecar) -> dict[str, tuple[int, int]]:
    """Process and thread of everybody on the way of a token, by role. The thread that talks is the first everywhere."""
    found = {"api_server": engine.process.pid, "engine": engine.core_pid(), "client": os.getpid()}
    for pid in descendants(engine.process.pid):
        if "Worker" in process_name(pid):
            found["worker"] = pid
    for process in sidecar.state()["processes"]:
        found[process["role"]] = process["pid"]
    return {role: (pid, pid) for role, pid in found.items() if role in ROLES}


#: Everybody on the way of a token from the engine's output to the test's own read. Not the observer: being late does
#: not change what it says.
DELIVERY_ROLES = ("api_server", "relay", "client")
ENGINE_ROLES = ("engine", "worker")
ROLES = (*DELIVERY_ROLES, *ENGINE_ROLES)


@dataclass
class CoreWatch:
    """Samples in a thread of its own: `with CoreWatch(threads) as watch: …; watch.samples`."""

    threads: Mapping[str, tuple[int, int]]
    samples: list[Sample] = field(default_factory=list)

    def __enter__(self) -> CoreWatch:
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.over.set()
        self.thread.join()

    def _run(self) -> None:
        paths = {role: Path(f"/proc/{pid}/task/{tid}/schedstat") for role, (pid, tid) in self.threads.items()}
        while not self.over.wait(INTERVAL_SECONDS):
            self.samples.append((time.monotonic_ns(), dict(_waited(paths))))

    def lines(self) -> list[dict[str, Any]]:
        return [{"kind": "cores", "at": at_ns, "waited": waited} for at_ns, waited in self.samples]


def _waited(paths: Mapping[str, Path]) -> Iterator[tuple[str, int]]:
    for role, path in paths.items():
        with contextlib.suppress(OSError):  # it is gone
            yield role, int(path.read_text().split()[1])


class CoreWaits:
    """Answers from the lines of a recording."""

    def __init__(self, lines: Sequence[dict[str, Any]]) -> None:
        self._times: list[int] = [line["at"] for line in lines]
        self._waited: list[dict[str, int]] = [line["waited"] for line in lines]

    def longest_ns(self, start_ns: int, end_ns: int, roles: Collection[str]) -> int:
        """The longest that one of them waited between two times; samples around these are taken whole."""
        low = max(0, bisect.bisect_right(self._times, start_ns) - 1)
        high = min(len(self._times) - 1, bisect.bisect_left(self._times, end_ns))
        if high <= low:
            return 0
        before, after = self._waited[low], self._waited[high]
        return max((after[role] - before[role] for role in roles if role in after and role in before), default=0)
