"""A real Prometheus and a real Alertmanager with the shipped rules and configurations, and a webhook that they page.

The programs are those of a Debian suite, unpacked by scripts/monitoring. The configurations are the shipped files with
addresses put in and, like the rules, with their times scaled, so that minutes pass in seconds.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from alerts.generate import write_rules
from alerts.rulebook.source import Source, format_duration, load, parse_duration
from tests.kit.eventually import eventually

ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 30.0
#: Debian's suites with the oldest release that has what the rules use, and with the newest there is.
OLDEST, NEWEST = "bookworm", "sid"
#: After so long Prometheus tells Alertmanager of an alert again, with the description of that moment.
RESEND_S = 60.0
_INTERVALS = re.compile(r".*_(interval|timeout|wait)$")


@dataclass(frozen=True)
class Programs:
    """The folder of a suite's programs."""

    folder: Path

    @property
    def is_newest(self) -> bool:
        return self.folder.name == NEWEST

    def __getitem__(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def run(self, name: str, *arguments: str | Path) -> str:
        """What a program says when it is content; fails with all it said otherwise."""
        done = subprocess.run(
            [self[name], *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


def fetch(suite: str) -> Programs:
    """Not being able to is a failure: these tests are worth nothing without the real programs."""
    folder = ROOT / ".cache" / "monitoring" / suite
    done = subprocess.run(
        [ROOT / "scripts/monitoring", suite, folder], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"no Prometheus of {suite}: {done.stdout}{done.stderr}"
    return Programs(folder)


class Webhook:
    """Takes what Alertmanager delivers. One message is one group of alerts."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        messages = self.messages

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                messages.append({"path": self.path, "at": time.time(), **message})
                self.send_response(200)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def alerts(self, name: str, status: str) -> list[dict[str, Any]]:
        """Delivered alerts of a name, with the path they came by, in order of delivery."""
        return [
            {"path": message["path"], "at": message["at"], **alert}
            for message in list(self.messages)
            for alert in message["alerts"]
            if alert["labels"]["alertname"] == name and alert["status"] == status
        ]

    def names(self) -> set[str]:
        return {alert["labels"]["alertname"] for message in list(self.messages) for alert in message["alerts"]}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_S)


class Stack:
    """Prometheus, Alertmanager and the webhook, wired to each other and to the targets given."""

    def __init__(self, programs: Programs, folder: Path, targets: dict[str, list[str]], scale: float) -> None:
        self.programs = programs
        self.folder = folder
        self.source = _impatient(load()).scaled(scale)
        self.webhook = Webhook()
        self._processes: list[subprocess.Popen[bytes]] = []
        manager, server = free_port(), free_port()
        self.prometheus = f"http://127.0.0.1:{server}"
        self.manager = f"http://127.0.0.1:{manager}"
        self.rules = write_rules(self.source, folder / "rules")
        self.config = self._prometheus_config(targets, manager, scale)
        self.manager_config = self._manager_config(scale)
        try:
            self._start(manager, server, scale)
        except BaseException:
            self.close()
            raise

    def _prometheus_config(self, targets: dict[str, list[str]], manager: int, scale: float) -> Path:
        config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
        config = scaled(config, scale)
        config["global"]["scrape_timeout"] = config["global"]["scrape_interval"]  # all the patience there is
        config["rule_files"] = [str(self.folder / "rules" / "*.yml")]
        config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{manager}"]
        for job in config["scrape_configs"]:
            job["static_configs"][0]["targets"] = targets[job["job_name"]]
        return _write(self.folder / "prometheus.yml", config)

    def _manager_config(self, scale: float) -> Path:
        text = (ROOT / "alerts/alertmanager/alertmanager.yml").read_text()
        config = scaled(yaml.safe_load(text.replace("127.0.0.1:9095", self.webhook.address)), scale)
        return _write(self.folder / "alertmanager.yml", config)

    def _start(self, manager: int, server: int, scale: float) -> None:
        self._launch(
            "prometheus-alertmanager",
            f"--config.file={self.manager_config}",
            f"--storage.path={self.folder / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{manager}",
            "--cluster.listen-address=",
        )
        self._launch(
            "prometheus",
            f"--config.file={self.config}",
            f"--storage.tsdb.path={self.folder / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{server}",
            f"--web.external-url={self.prometheus}",
            f"--web.user-assets={ROOT / 'alerts'}",
            "--enable-feature=exemplar-storage",
            f"--rules.alert.resend-delay={format_duration(RESEND_S * scale)}",
        )
        eventually(lambda: _ready(f"{self.manager}/-/ready") and _ready(f"{self.prometheus}/-/ready"), self.log)

    def _launch(self, program: str, *arguments: str) -> None:
        with (self.folder / f"{program}.log").open("wb") as log:
            command = [self.programs[program], *arguments]
            self._processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    @property
    def pid(self) -> int:
        """Of Prometheus."""
        return self._processes[1].pid

    def log(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    # --- Asking Prometheus ---

    def query(self, expression: str) -> list[dict[str, Any]]:
        return self._ask("query", query=expression)["result"]

    def value(self, expression: str) -> float | None:
        """The one value of an expression; None for none."""
        found = self.query(expression)
        assert len(found) < 2, found
        return float(found[0]["value"][1]) if found else None

    def samples(self, expression: str, seconds: float) -> list[dict[str, Any]]:
        """Raw samples of the last seconds: series with their (Unix time, value) pairs."""
        return self._ask("query", query=f"{expression}[{seconds:.0f}s]")["result"]

    def exemplars(self, expression: str, seconds: float) -> list[dict[str, Any]]:
        """Those of the last seconds: labels, value and Unix time of each."""
        now = time.time()
        found = self._ask("query_exemplars", query=expression, start=str(now - seconds), end=str(now))
        return [exemplar for series in found for exemplar in series["exemplars"]]

    def alert_states(self, seconds: float) -> set[tuple[str, str, str]]:
        """(alert, state, instance) of every alert that was pending or firing at any time within the last seconds."""
        return {
            (series["metric"]["alertname"], series["metric"]["alertstate"], series["metric"].get("instance", ""))
            for series in self.samples("ALERTS", seconds)
        }

    def _ask(self, what: str, **parameters: str) -> Any:
        answer = httpx.get(f"{self.prometheus}/api/v1/{what}", params=parameters, timeout=PATIENCE_S).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    # --- Its end ---

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            _wait_or_kill(process)
        self.webhook.close()
        shutil.rmtree(self.folder / "prometheus", ignore_errors=True)


@contextlib.contextmanager
def stack(programs: Programs, folder: Path, targets: dict[str, list[str]], scale: float) -> Iterator[Stack]:
    built = Stack(programs, folder, targets, scale)
    try:
        yield built
    finally:
        built.close()


def _impatient(source: Source) -> Source:
    """The shipped source, but alerts outlive their condition by two minutes at most, TTFTHigh and burns of the budget
    wait no longer, and a request is stuck sooner."""
    holds = {alert: {**hold, "keep": "2m"} for alert, hold in source.raw["holds"].items()}
    holds["TTFTHigh"] = {**holds["TTFTHigh"], "for": "2m"}
    burns = [{**rate, "for": "2m"} for rate in source.raw["burn_rates"]]
    thresholds = {**source.raw["thresholds"], "first_token_wait": 15}
    return Source({**source.raw, "holds": holds, "burn_rates": burns, "thresholds": thresholds})


def scaled(config: Any, scale: float) -> Any:
    """A configuration with every interval, timeout and wait multiplied."""
    if isinstance(config, dict):
        return {
            key: format_duration(parse_duration(value) * scale)
            if isinstance(value, str) and _INTERVALS.match(key)
            else scaled(value, scale)
            for key, value in config.items()
        }
    if isinstance(config, list):
        return [scaled(entry, scale) for entry in config]
    return config


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(PATIENCE_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _ready(url: str) -> bool:
    try:
        return httpx.get(url, timeout=PATIENCE_S).status_code == 200
    except httpx.TransportError:
        return False


def _write(path: Path, config: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path
