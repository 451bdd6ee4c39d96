"""Put one side under load and read what it cost: CPU per token, age of tokens on arrival, memory per stream."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.bench import procstat
from tests.bench.programs import BenchError, program
from tests.bench.sides import LOAD_CORE, PROXY_CORE, Side

SCRAPE_SECONDS = 1.0
GATEWAY_SECONDS = 0.05
PAGE_BYTES = 1 << 16  # of the upstream's page
WATCHER_PRIORITY = 5  # over everything that is measured


@dataclass(frozen=True)
class Load:
    """N streams at `rate` tokens per second each; `step` sends all of them at once as an engine's step does."""

    streams: int
    rate: float
    warmup_seconds: float
    measure_seconds: float
    step: bool = False
    max_tokens: int = 1_000_000_000
    hold_ms: int = 0
    again: bool = False  # each answer is followed by the next request on its connection

    @property
    def name(self) -> str:
        """As the tables call it."""
        return f"{self.streams:,}" + (f" of {self.max_tokens} tokens" if self.again else "")

    def arguments(self, port: int) -> list[str]:
        pace = (self.streams, self.rate, self.max_tokens)
        times = (self.warmup_seconds, self.measure_seconds, int(self.step), self.hold_ms, int(self.again))
        return [program("client"), str(port), *map(str, pace), *map(str, times)]


def measure(side: Side, load: Load) -> dict[str, Any]:
    """One run: client's report, and per part of the side the CPU nanoseconds per token."""
    with client(side, load) as process:
        expect(process, side, "STEADY")
        with scraping(side.admin) as scrapes, watching(PROXY_CORE, LOAD_CORE) as holes:
            expect(process, side, "BEGIN")
            pace(side)
            before = {part: procstat.cpu_ns(pids) for part, pids in side.parts.items()}
            memory = {part: procstat.anonymous_rss_bytes(pids) for part, pids in side.parts.items()}
            expect(process, side, "END")
            kept = pace(side)
            after = {part: procstat.cpu_ns(pids) for part, pids in side.parts.items()}
        report: dict[str, Any] = json.loads(process.stdout.readline())  # type: ignore[union-attr]
    tokens = max(report["tokens"], 1)
    report["cpu_ns_per_token"] = {part: (after[part] - before[part]) / tokens for part in side.parts}
    report["rss_bytes"] = memory
    report["side"] = side.name
    report["pace"] = kept
    report["scrapes"] = scrapes
    report["holes"] = holes
    set_holes_aside(report)
    check(report, load)
    return report


@contextlib.contextmanager
def watching(*cores: int) -> Iterator[list[tuple[int, int]]]:
    """Watch these cores meanwhile; yields the times (nanoseconds, from and to) in which one of them did not run.

    On a virtual machine the host takes a core away for milliseconds. A token that is on its way then is late whatever
    proxy it passes, and a few such times in a run decide what one token in a thousand meets.
    """
    holes: list[tuple[int, int]] = []
    commands = [[program("holes"), str(core), str(WATCHER_PRIORITY)] for core in cores]
    watchers = [subprocess.Popen(each, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for each in commands]
    try:
        yield holes
    finally:
        for watcher in watchers:
            output, _ = watcher.communicate(timeout=10)
            holes += [(begin, end) for begin, end in json.loads(output)]


def set_holes_aside(report: dict[str, Any]) -> None:
    """Replace p99.9 by that of the tokens which no hole touched; `touched` counts the others, `p999_all` is of all.

    What has piled up in a hole takes time to pass, too: as long again as it lasted is set aside behind it.
    """
    slowest, latency = report.pop("slowest"), report["latency_ns"]
    touched = [(begin, 2 * end - begin) for begin, end in report["holes"]]
    left = [came - sent for sent, came in slowest if not any(sent < end and came > begin for begin, end in touched)]
    report["touched"] = len(slowest) - len(left)
    latency["p999_all"] = latency["p999"]
    rank = (report["tokens"] - report["touched"]) // 1000
    if rank < len(left):
        latency["p999"] = left[rank]


def pace(side: Side) -> dict[str, int]:
    """How late the upstream was at worst since the last call: what it missed cannot be held against the proxy."""
    with urllib.request.urlopen(f"http://127.0.0.1:{side.upstream_port}/pace", timeout=5) as answer:
        kept: dict[str, int] = json.load(answer)
        return kept


@contextlib.contextmanager
def client(side: Side, load: Load) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        load.arguments(side.port), stdout=subprocess.PIPE, text=True, preexec_fn=lambda: go_first_on(LOAD_CORE)
    )
    try:
        yield process
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def go_first_on(core: int) -> None:
    os.sched_setaffinity(0, {core})
    procstat.go_first(os.getpid())


def expect(process: subprocess.Popen[str], side: Side, word: str) -> None:
    line = process.stdout.readline().strip()  # type: ignore[union-attr]
    if line != word:
        raise BenchError(f"the load through {side.name} ended early: wanted {word}, got {line!r}")


def check(report: dict[str, Any], load: Load) -> None:
    """A run in which streams broke measured something else. Without a measured time, all must have ended whole."""
    whole = report["alive"] if load.measure_seconds else report["complete"]
    if report["broken"] or whole != load.streams:
        raise BenchError(f"{report['side']}: {report['broken']} of {load.streams} streams broke, {whole} did not")
    if not load.measure_seconds and report["all_tokens"] != load.streams * load.max_tokens:
        raise BenchError(f"{report['side']}: {report['all_tokens']} tokens of {load.streams} × {load.max_tokens} came")


@contextlib.contextmanager
def scraping(admin: str | None) -> Iterator[dict[str, float]]:
    """Scrape our /metrics every second meanwhile, more often than Prometheus would; yields what came of it.

    `dropped` are tap packets that the observer was too slow for since it was started.
    """
    found: dict[str, float] = {"done": 0, "failed": 0, "slowest_seconds": 0.0, "dropped": 0}
    if admin is None:
        yield found
        return
    done = threading.Event()
    thread = threading.Thread(target=_scrape_until, args=(f"{admin}/metrics", done, found))
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def gateway(port: int | None) -> Iterator[dict[str, float]]:
    """Meanwhile read a page as large as vLLM's through this port, as the endpoint picker of the Gateway API's inference
    extension does: every 50 ms, on one connection that is kept. Yields how often, and how many came otherwise. Without
    a port, none does."""
    found: dict[str, float] = {"done": 0, "failed": 0}
    if port is None:
        yield found
        return
    done = threading.Event()
    thread = threading.Thread(target=_pick_until, args=(port, done, found))
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def _pick_until(port: int, done: threading.Event, found: dict[str, float]) -> None:
    os.sched_setaffinity(0, {LOAD_CORE})  # of this thread
    headers = {"User-Agent": "Go-http-client/1.1", "Accept-Encoding": "gzip"}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        while not done.wait(GATEWAY_SECONDS):
            try:
                connection.request("GET", "/metrics?page", headers=headers)
                answer = connection.getresponse()
                whole = len(answer.read()) == PAGE_BYTES and answer.status == 200
            except (OSError, http.client.HTTPException):
                connection.close()  # the next request opens it anew
                whole = False
            found["done" if whole else "failed"] += 1


def _scrape_until(url: str, done: threading.Event, found: dict[str, float]) -> None:
    while not done.wait(SCRAPE_SECONDS):
        began = time.monotonic()
        try:
            with urllib.request.urlopen(url, timeout=10) as page:
                lines = page.read().decode().splitlines()
        except OSError:
            found["failed"] += 1
            continue
        found["done"] += 1
        found["slowest_seconds"] = max(found["slowest_seconds"], time.monotonic() - began)
        dropped = (line for line in lines if line.startswith("prefillwatch_tap_dropped_total"))
        found["dropped"] = sum(float(line.split()[-1]) for line in dropped)


def idle_memory(side: Side, streams: int, settle_seconds: float) -> dict[str, float]:
    """Bytes of memory per idle stream: streams that had tokens and are now silent, against the same process without."""
    warm = Load(streams=50, rate=40, warmup_seconds=0.2, measure_seconds=0.2)
    measure(side, warm)
    time.sleep(settle_seconds)
    base = {part: procstat.anonymous_rss_bytes(pids) for part, pids in side.parts.items()}
    silent = Load(streams, 20, warmup_seconds=settle_seconds, measure_seconds=0.5, max_tokens=5, hold_ms=60_000)
    report = measure(side, silent)
    return {part: (report["rss_bytes"][part] - base[part]) / streams for part in side.parts}
