"""What the soak runs on: the upstream and the sidecar as processes, the wall clock they see, the disk they write to."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
START_LIMIT_S = 60.0


class SoakError(Exception):
    """The stage could not be set up, or something on it did not happen in time."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(condition: Callable[[], bool], what: str, limit_s: float = START_LIMIT_S) -> float:
    """Wait for it, which is not yet so either while the sidecar cannot be asked; gives the seconds that it took. Raises
    SoakError."""
    began = time.monotonic()
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if condition():
                return time.monotonic() - began
        if time.monotonic() - began > limit_s:
            raise SoakError(f"{what}: not within {limit_s:.0f} s")
        time.sleep(0.05)


class Upstream:
    """The scripted server; `restart` ends it the hard way."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.journal = folder / "upstream.jsonl"
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.upstream", str(self.port), str(self.journal)], cwd=ROOT
        )
        until(self._answers, "the upstream server answers")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def restart(self) -> None:
        self.stop()
        time.sleep(1.0)
        self._start()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


class WallClock:
    """The wall clock of the sidecar's processes, by a preloaded shim."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._file.write_bytes(bytes(8))
        self._shim = folder / "clock_shim.so"
        command = ["gcc", "-shared", "-fPIC", "-O2", "-o", str(self._shim), str(HERE / "clock_shim.c"), "-ldl"]
        subprocess.run(command, check=True)

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._shim), "SOAK_CLOCK": str(self._file)}

    def step(self, seconds: float) -> None:
        with self._file.open("r+b") as opened:
            opened.write(struct.pack("<q", int(seconds * 1e9)))


class SmallDisk:
    """A folder on a file system of its own that can be filled. Needs the right to mount."""

    def __init__(self, folder: Path, size: int = 32 * 2**20) -> None:
        self.folder = folder / "flights"
        self.folder.mkdir()
        self._mount("-t", "tmpfs", "-o", f"size={size}", "soak", str(self.folder))

    @staticmethod
    def _mount(*arguments: str) -> None:
        result = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
        if result.returncode:
            raise SoakError(f"cannot mount the small disk ({result.stderr.strip()}); run as root, or in 'unshare -rm'")

    def fill(self) -> None:
        with contextlib.suppress(OSError), (self.folder / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(4096))

    def empty(self) -> None:
        (self.folder / "ballast").unlink(missing_ok=True)

    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.iterdir() if path.name != "ballast")

    def remove(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=False)


@dataclass(frozen=True)
class Sample:
    """What one process holds."""

    pid: int
    descriptors: int
    rss_bytes: int


class Sidecar:
    """`prefillwatch serve`, its log in a file."""

    def __init__(self, folder: Path, upstream: str, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.port, self.admin_port = free_port(), free_port()
        self.log = folder / f"sidecar-{self.port}.log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFILLWATCH_")}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "prefillwatch", "serve", "--upstream", upstream, "--gpu", "off"),
                    *("--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin_port}"),
                    *arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**kept, **(environment or {})},
            )
        self.url = f"{'https' if '--tls-cert' in arguments else 'http'}://127.0.0.1:{self.port}"
        self.admin = f"http://127.0.0.1:{self.admin_port}"
        until(self.is_ready, "the sidecar is ready")

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_ready(self) -> bool:
        return self.status("/readyz") == 200

    def status(self, path: str) -> int:
        try:
            return httpx.get(self.admin + path, timeout=5).status_code
        except httpx.TransportError:
            return 0

    def _ask(self, path: str) -> httpx.Response:
        """What the observer answers; it may be away or busy for a while. Raises SoakError when it stays so."""
        answers: list[httpx.Response] = []

        def answered() -> bool:
            answer = httpx.get(self.admin + path, timeout=60)
            answer.raise_for_status()
            answers.append(answer)
            return True

        until(answered, f"{path} is answered")
        return answers[-1]

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("/api/state").json()
        return found

    def pids(self, role: str) -> list[int]:
        return [process["pid"] for process in self.state()["processes"] if process["role"] == role]

    def samples(self) -> dict[str, list[Sample]]:
        """What each process holds now, by role."""
        found: dict[str, list[Sample]] = {}
        for process in self.state()["processes"]:
            found.setdefault(process["role"], []).append(sample(process["pid"]))
        return found

    def metrics(self) -> Metrics:
        return Metrics(self._ask("/metrics").text)

    def is_over(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise SoakError("the sidecar did not end within 60 s of SIGTERM") from None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Metrics:
    """One scrape."""

    def __init__(self, page: str) -> None:
        self._samples = [found for family in text_string_to_metric_families(page) for found in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """Sum of the samples of `prefillwatch_<name>` with these labels; 0 where there are none."""
        return sum(
            found.value
            for found in self._samples
            if found.name == f"prefillwatch_{name}" and labels.items() <= found.labels.items()
        )


def sample(pid: int) -> Sample:
    folder = Path(f"/proc/{pid}")
    status = (folder / "status").read_text()
    rss = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return Sample(pid, len(list((folder / "fd").iterdir())), int(rss.split()[1]) * 1024)
