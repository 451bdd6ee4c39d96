"""How much a fleet asks of one Prometheus: python scripts/fleet.py --replicas 500 --seconds 90 [--programs FOLDER]

Serves the pages of that many replicas from this process, each with every series that one model can have, lets a real
Prometheus scrape them and evaluate the shipped rules at their shipped intervals, and prints what that took. Loopback
only; it ends by itself. FOLDER/bin holds prometheus, as scripts/monitoring leaves it; without it the one in PATH runs.
"""

from __future__ import annotations

import argparse
import http.server
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from prefillwatch.export.exposition import render
from prefillwatch.export.registry import Registry
from prefillwatch.export.spec import Kind, Spec
from prefillwatch.export.table import TABLE

ROOT = Path(__file__).parent.parent
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
#: Values for labels whose set is open.
OPEN_LABELS = {
    "model": MODEL,
    "engine": "0",
    "relay": "0",
    "gpu": "0",
    "process": "relay-0",
    "server": "vllm",
    "reason": "json",
    "version": "0.1.0",
}
#: Labels of what a replica shows only where the settings ask for it.
ASKED_FOR = {"tenant", "priority"}
PAGES = 12


def pages(interval: float) -> list[bytes]:
    """What a busy replica shows at one scrape after the other."""
    registry = Registry()
    shown = []
    for scrape in range(PAGES):
        for spec in TABLE:
            if ASKED_FOR.isdisjoint(label.name for label in spec.labels):
                _advance(registry, spec, scrape, interval)
        shown.append(render(registry.snapshot())[0])
    return shown


def _advance(registry: Registry, spec: Spec, scrape: int, interval: float) -> None:
    for labels in itertools.product(*(label.values or (OPEN_LABELS[label.name],) for label in spec.labels)):
        if spec.kind is Kind.COUNTER:
            registry.counter(spec).add(labels, interval * 0.01 * (scrape + 1))
        elif spec.kind is Kind.GAUGE:
            registry.gauge(spec).set(labels, 1.0 if spec.name in ("up", "kv_signal_present") else 0.5 / (scrape + 1))
        else:
            counts = [int(interval) + (place + scrape) % 7 for place in range(len(spec.bounds) + 1)]
            registry.histogram(spec).add_counts(labels, counts, interval * 0.02)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request: object, client_address: object) -> None:
        """A scrape that gave up; Prometheus counts it."""


class Replicas:
    """All replicas behind one port; the path tells them apart."""

    def __init__(self, shown: list[bytes], interval: float) -> None:
        began = time.monotonic()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                page = shown[min(int((time.monotonic() - began) / interval), len(shown) - 1)]
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def configuration(address: str, replicas: int, scrape: str, rules: Path) -> dict[str, Any]:
    """The shipped configuration with the fleet as targets."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))
    config["global"] |= {"scrape_interval": scrape, "scrape_timeout": scrape, "evaluation_interval": scrape}
    config["rule_files"] = [str(rules / "*.yml")]
    del config["alerting"]
    job = config["scrape_configs"][0]
    job["static_configs"] = [
        {"targets": [address], "labels": {"instance": f"replica-{number:05}:9843", "__metrics_path__": f"/{number}"}}
        for number in range(replicas)
    ]
    config["scrape_configs"] = [job]
    return config


@dataclass
class Report:
    """What it took. Times in seconds, memory in bytes, processor time in cores."""

    replicas: int
    page_bytes: int
    series_per_replica: float = 0.0
    series: float = 0.0
    recorded_series: float = 0.0
    samples_per_second: float = 0.0
    scraped: float = 0.0
    slowest_scrape: float = 0.0
    groups: dict[str, float] = field(default_factory=dict)
    rules_failed: float = 0.0
    evaluations_missed: float = 0.0
    memory: float = 0.0
    cores: float = 0.0

    def lines(self) -> list[str]:
        groups = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in sorted(self.groups.items()))
        return [
            f"replicas                 {self.replicas} ({self.scraped:.0f} scraped)",
            f"page                     {self.page_bytes / 1024:.0f} KiB, slowest scrape {self.slowest_scrape:.2f} s",
            f"series per replica       {self.series_per_replica:.0f}",
            f"series in all            {self.series:.0f}, {self.recorded_series:.0f} of them recorded by rules",
            f"samples per second       {self.samples_per_second:.0f}",
            f"evaluation               {groups}",
            f"failed, missed           {self.rules_failed:.0f} rules, {self.evaluations_missed:.0f} evaluations",
            f"Prometheus               {self.memory / 2**20:.0f} MiB resident, {self.cores:.2f} cores",
        ]


class Server:
    """A Prometheus with a data folder of its own."""

    def __init__(self, program: str, config: dict[str, Any], folder: Path) -> None:
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.url = f"http://{address}"
        with (folder / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603 (the program that was asked for)
                [
                    program,
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address={address}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def ask(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=60) as answer:  # noqa: S310 (loopback)
            return json.load(answer)["data"]

    def value(self, expression: str) -> float:
        found = self.ask("query", query=expression)["result"]
        return float(found[0]["value"][1]) if found else 0.0

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> float:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(30)


def measure(program: str, replicas: int, seconds: float, scrape: str, rules: Path) -> Report:
    """Raises ChildProcessError when Prometheus ends by itself."""
    interval = float(scrape.removesuffix("s"))
    shown = pages(interval)
    fleet = Replicas(shown, interval)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = Server(program, configuration(fleet.address, replicas, scrape, rules), folder)
        try:
            time.sleep(seconds / 2)
            before, since = server.processor_seconds(), time.monotonic()
            time.sleep(seconds / 2)
            if server.process.poll() is not None:
                raise ChildProcessError((folder / "prometheus.log").read_text()[-2000:])
            cores = (server.processor_seconds() - before) / (time.monotonic() - since)
            return _report(server, Report(replicas, len(shown[-1]), cores=cores))
        finally:
            server.close()
            fleet.close()


def _report(server: Server, report: Report) -> Report:
    report.memory = server.resident_bytes()
    report.scraped = server.value("sum(up)")
    report.series_per_replica = server.value("avg(scrape_samples_scraped)")
    report.slowest_scrape = server.value("max(scrape_duration_seconds)")
    report.samples_per_second = report.scraped * report.series_per_replica / _seconds(server)
    report.recorded_series = server.value('count({__name__=~".+:.+:.+"})')
    stats = server.ask("status/tsdb")["headStats"]
    report.series = stats["numSeries"]
    groups = server.ask("rules")["groups"]
    report.groups = {group["name"]: float(group["evaluationTime"]) for group in groups}
    report.rules_failed = sum(rule["health"] == "err" for group in groups for rule in group["rules"])
    # Prometheus does not scrape itself here; a group that takes longer than its interval misses evaluations.
    report.evaluations_missed = sum(group["evaluationTime"] > group["interval"] for group in groups)
    return report


def _seconds(server: Server) -> float:
    config = yaml.safe_load(server.ask("status/config")["yaml"])
    return float(config["global"]["scrape_interval"].removesuffix("s"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=90.0, help="how long to watch")
    parser.add_argument("--scrape", default="15s", help="scrape and evaluation interval, in seconds")
    parser.add_argument("--programs", type=Path, help="folder with bin/prometheus")
    options = parser.parse_args()
    program = str(options.programs / "bin/prometheus") if options.programs else shutil.which("prometheus")
    if program is None:
        parser.error("there is no prometheus in PATH; name a folder with --programs (see scripts/monitoring)")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that Prometheus is ended too
    report = measure(program, options.replicas, options.seconds, options.scrape, ROOT / "alerts/rules")
    print("\n".join(report.lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
