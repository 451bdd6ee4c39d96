"""Start prefillwatch in front of a server, and read what it says."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from tests.real.engine import ROOT, end_with_parent, free_port

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class SidecarError(Exception):
    """prefillwatch could not be started or did not do what was waited for; the message holds the end of its log."""


@dataclass
class Sidecar:
    """`prefillwatch serve` or `run` as a child process: `with Sidecar(log, ("serve", …)) as sidecar: …`."""

    log_path: Path
    arguments: Sequence[str]
    command: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    ready_limit_seconds: float = 60.0
    wait: bool = True
    port: int = field(default_factory=free_port)
    admin_port: int = field(default_factory=free_port)

    def __enter__(self) -> Sidecar:
        options = [f"--listen=127.0.0.1:{self.port}", f"--admin=127.0.0.1:{self.admin_port}"]
        mode, *more = self.arguments
        words = [
            sys.executable,
            "-m",
            "prefillwatch",
            mode,
            *options,
            *more,
            *(("--", *self.command) if self.command else ()),
        ]
        search = [self.environment.get("PYTHONPATH", ""), str(ROOT / "exporter")]
        env = os.environ | self.environment | {"PYTHONPATH": ":".join(filter(None, search))}
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                words, stdout=log, stderr=subprocess.STDOUT, env=env, start_new_session=True, preexec_fn=end_with_parent
            )
        try:
            if self.wait:
                self.wait_until(self.is_ready, self.ready_limit_seconds, "ready")
                # Streams are served before the observer is there, by seconds on a busy machine.
                self.wait_until(lambda: self.status("/metrics") == 200, self.ready_limit_seconds, "observing")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self.admin_port}"

    def stop(self) -> int:
        """End it with SIGTERM if it still runs; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(90)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait()

    def status(self, path: str) -> int:
        """The HTTP status of an admin path; 0 when nobody answers."""
        try:
            with urllib.request.urlopen(f"{self.admin}{path}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def is_ready(self) -> bool:
        return self.status("/readyz") == 200

    def state(self) -> Any:
        with urllib.request.urlopen(f"{self.admin}/api/state", timeout=5) as answer:
            return json.load(answer)

    def metrics(self) -> Metrics:
        return Metrics.read(f"{self.admin}/metrics")

    def wait_until(self, condition: Callable[[], bool], limit_seconds: float, what: str) -> bool:
        """Poll until `condition` holds; raises SidecarError when it does not in time."""
        deadline = time.monotonic() + limit_seconds
        while not condition():
            if self.process.poll() is not None:
                raise SidecarError(
                    f"prefillwatch exited with {self.process.returncode}, not {what}:\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise SidecarError(f"prefillwatch was not {what} after {limit_seconds:.0f} s:\n{self.log_tail()}")
            time.sleep(0.1)
        return True

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace")

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])


@dataclass
class Metrics:
    """One scrape of a metrics page, ours or vLLM's."""

    samples: Samples

    @classmethod
    def read(cls, url: str) -> Metrics:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return cls.parse(answer.read().decode())

    @classmethod
    def parse(cls, text: str) -> Metrics:
        families = text_string_to_metric_families(text)
        return cls({(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples})

    def total(self, name: str, **labels: str) -> float:
        """Sum of all samples of `name` that have these labels; 0 when there are none."""
        return sum(self.matching(name, labels))

    def value(self, name: str, **labels: str) -> float:
        """The one sample of `name` with these labels. Raises LookupError when there is none or more than one."""
        found = self.matching(name, labels)
        if len(found) != 1:
            raise LookupError(f"{len(found)} samples of {name} with {labels}")
        return found[0]

    def has(self, name: str, **labels: str) -> bool:
        return bool(self.matching(name, labels))

    def matching(self, name: str, labels: dict[str, str]) -> list[float]:
        wanted = labels.items()
        return [value for (each, have), value in self.samples.items() if each == name and wanted <= set(have)]

    def gaps(self) -> float:
        """Token events that were not the first of their stream: each makes a gap, or came with another in one read."""
        name = "prefillwatch_inter_token_latency_seconds_count"
        return self.total(name) + self.total("prefillwatch_coalesced_tokens_total")

    def since(self, before: Metrics) -> Metrics:
        """What counters and histograms gained since an earlier scrape."""
        return Metrics({key: value - before.samples.get(key, 0.0) for key, value in self.samples.items()})

    def buckets(self, histogram: str, **labels: str) -> dict[float, float]:
        """Cumulative counts by upper bound, summed over all other labels."""
        found: dict[float, float] = {}
        for (name, have), value in self.samples.items():
            if name == f"{histogram}_bucket" and labels.items() <= set(have):
                bound = float(dict(have)["le"])
                found[bound] = found.get(bound, 0.0) + value
        return found
