"""Demos and a real Prometheus that scrapes them: what dashboards are checked and drawn against."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SCRAPE_EVERY_S = 2
JOB = "prefillwatch"
START_LIMIT_S = 90.0


@dataclass(frozen=True, slots=True)
class Replica:
    """A simulated vLLM with the sidecar in front of it and traffic: `prefillwatch demo` with these options."""

    instance: str
    options: tuple[str, ...] = ()


class Prometheus:
    """The query API of a Prometheus. Times are Unix seconds."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expr: str, at: float) -> list[dict[str, Any]]:
        return self._result("query", query=expr, time=at)

    def query_range(self, expr: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        return self._result("query_range", query=expr, start=start, end=end, step=step)

    def label_values(self, selector: str, label: str, start: float, end: float) -> list[str]:
        query = urllib.parse.urlencode({"match[]": selector, "start": start, "end": end})
        found: list[str] = self._read(f"label/{label}/values?{query}")["data"]
        return found

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5):  # noqa: S310 # our own address
                return True
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def _result(self, endpoint: str, **parameters: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._read(f"{endpoint}?{urllib.parse.urlencode(parameters)}")["data"]["result"]
        return found

    def _read(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=30) as answer:  # noqa: S310 # see above
                page: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            raise ValueError(f"{path}: {error.read().decode()}") from None
        return page


@contextlib.contextmanager
def on_stage(replicas: Sequence[Replica], folder: Path) -> Iterator[Prometheus]:
    """All of it started, and stopped again at the end. Logs and data are in ``folder``."""
    with contextlib.ExitStack() as stack:
        admins = [_free_port() for _ in replicas]
        for replica, admin in zip(replicas, admins, strict=True):
            stack.enter_context(_running(_demo(replica, admin), folder / f"{replica.instance}.log"))
        server = f"127.0.0.1:{_free_port()}"
        config = folder / "prometheus.yml"
        config.write_text(json.dumps(_scraping(replicas, admins)))
        command = [
            str(find_prometheus()),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={server}",
        ]
        stack.enter_context(_running(command, folder / "prometheus.log"))
        prometheus = Prometheus(f"http://{server}")
        _eventually(prometheus.is_ready, "Prometheus is not ready", folder)
        count = f"count(prefillwatch_up) == {len(replicas)}"
        _eventually(lambda: bool(prometheus.query(count, time.time())), "not every demo is scraped", folder)
        yield prometheus


def find_prometheus() -> Path:
    """The one that is installed, else Debian's newest, unpacked into .cache."""
    installed = shutil.which("prometheus")
    if installed:
        return Path(installed)
    unpacked = ROOT / ".cache" / "monitoring" / "sid"
    subprocess.run([ROOT / "scripts" / "monitoring", "sid", unpacked], check=True)  # noqa: S603 # our own script
    return unpacked / "bin" / "prometheus"


def _demo(replica: Replica, admin: int) -> list[str]:
    free = [word for option in ("--listen", "--simulator") for word in (option, "127.0.0.1:0")]
    return [sys.executable, "-m", "prefillwatch", "demo", "--admin", f"127.0.0.1:{admin}", *free, *replica.options]


def _scraping(replicas: Sequence[Replica], admins: Sequence[int]) -> dict[str, Any]:
    """JSON is YAML too. Instances get names, so that pictures show those and not ports."""
    every = f"{SCRAPE_EVERY_S}s"
    targets = [
        {"targets": [f"127.0.0.1:{admin}"], "labels": {"instance": replica.instance}}
        for replica, admin in zip(replicas, admins, strict=True)
    ]
    return {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "scrape_configs": [{"job_name": JOB, "static_configs": targets}],
    }


@contextlib.contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[None]:
    with log.open("w") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)  # noqa: S603
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _eventually(condition: Callable[[], bool], complaint: str, folder: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            logs = "\n".join(f"{log.name}: {log.read_text()[-2000:]}" for log in sorted(folder.glob("*.log")))
            raise TimeoutError(f"{complaint} after {START_LIMIT_S:g} s\n{logs}")
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
