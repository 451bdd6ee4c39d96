"""A sidecar under attack: the server behind it, a stream beside the attack, a bystander, and what is measured."""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.procstat import go_first
from tests.hostile import meter
from tests.hostile.stranger import CLOSED, Link, Reply, Stranger
from tests.hostile.tls import anybody
from tests.kit.eventually import eventually

ROOT = Path(__file__).parents[2]
_START_S = 60.0
_SETTLED_S = 0.15
#: Longest that we wait until all work of an attack is done.
_SETTLE_LIMIT_S = 30.0
#: What a bystander waits for an answer; whoever asks for health waits a second or a few.
_BYSTANDER_S = 5.0
_ASKS_EVERY_S = 0.25
#: Windows without an attack that tell what processes need anyhow.
_USUAL = 6
_CHAT = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"Who are you?"}]}'

#: What everybody else may want while an attack lasts: where it is asked, and the bytes.
ASKED: dict[str, tuple[str, bytes]] = {
    path: ("admin", b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path.encode())
    for path in ("/healthz", "/readyz", "/metrics")
}
ASKED["a chat"] = (
    "data",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Script: short:2\r\nContent-Type: application/json\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_CHAT), _CHAT),
)


@dataclass(frozen=True)
class Cost:
    """What something cost a process: CPU time beyond that of the same time without it, and memory at its peak."""

    cpu_ns: int
    memory: int
    descriptors: int


@dataclass
class Window:
    """A stretch of time, with or without an attack."""

    seconds: float = 0.0
    worst_ns: int = 0
    sent: int = 0
    replies: list[Reply] = field(default_factory=list)
    costs: dict[str, Cost] = field(default_factory=dict)
    unanswered: dict[str, str] = field(default_factory=dict)
    died: str = ""


class Place:
    """Started with the arguments of `prefillwatch serve`; `close` ends all processes."""

    def __init__(self, *arguments: str, prefix: tuple[str, ...] = (), certificate: str = "", engine: str = "") -> None:
        self.certificate = certificate
        self.engine = engine
        self._upstream = _spawn("-m", "tests.hostile.upstream")
        port = int(_line(self._upstream))
        self.log: list[str] = []
        command = ["-m", "prefillwatch", "serve", "--upstream", f"http://127.0.0.1:{port}", "--gpu", "off"]
        self._sidecar = _spawn(
            *command, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", *arguments, prefix=prefix, errors=True
        )
        threading.Thread(target=self._collect, daemon=True).start()
        self.data = ("127.0.0.1", int(self._said(r"point clients at https?://\S+:(\d+)")))
        self.admin = ("127.0.0.1", int(self._said(r"metrics: https?://\S+:(\d+)/metrics")))
        self._await_ready()
        self.pids = meter.processes(self._sidecar.pid)
        self.victim = self._new_victim()
        self._calm: list[Window] = []
        # What else the machine does is no fault of the relay's. The observer stays where it is, as it would on any
        # machine: what an attack makes it do is in its budget of CPU time.
        for pid in (*self.pids["relay"], self._upstream.pid, self.victim.pid):
            go_first(pid)
        self.quiet(0.5)
        self.before = {role: meter.read(pids) for role, pids in self.pids.items()}

    def _collect(self) -> None:
        assert self._sidecar.stderr is not None
        for line in self._sidecar.stderr:
            self.log.append(line)

    def _said(self, pattern: str) -> str:
        found = eventually(
            lambda: re.search(pattern, "".join(self.log)),
            lambda: "the sidecar did not start:\n" + "".join(self.log),
            patience_s=_START_S,
            every_s=0.02,
        )
        return found[1]

    def _await_ready(self) -> None:
        eventually(
            lambda: self._ask("/readyz").status == 200,
            lambda: "it does not become ready:\n" + "".join(self.log),
            patience_s=_START_S,
            every_s=0.05,
        )

    def _new_victim(self) -> subprocess.Popen[str]:
        host, port = self.data
        return _spawn("-m", "tests.hostile.victim", host, str(port), *([self.certificate] if self.certificate else []))

    def stranger(self, at: str, link: Link | None = None) -> Stranger:
        address = self.admin if at == "admin" else self.data
        stranger = Stranger(address, link, anybody() if self.certificate and at == "data" else None)
        stranger.engine = self.engine
        return stranger

    # What is measured
    # -----------------------------------------------------------------------------------------------------------------

    def quiet(self, seconds: float) -> Window:
        """The same without an attack."""
        window = self._window(lambda window: time.sleep(seconds))
        self._calm.append(window)
        return window

    def calm_ns(self, seconds: float) -> int:
        """What held up the stream at worst in the latest so many seconds without an attack."""
        worst = 0
        for window in reversed(self._calm):
            worst = max(worst, window.worst_ns)
            seconds -= window.seconds
            if seconds <= 0:
                break
        return worst

    def _usual(self, role: str) -> float:
        """CPU time per second, in ns, that a process of ours needs without an attack."""
        return statistics.median(window.costs[role].cpu_ns / window.seconds for window in self._calm[-_USUAL:])

    def under(self, attack: Callable[[Stranger], list[Reply]], at: str, rate: float = 0.0) -> Window:
        """An attack by a stranger; costs are those beyond what there is without one."""
        stranger = self.stranger(at, Link(rate))

        def act(window: Window) -> None:
            try:
                window.replies = attack(stranger)
            finally:
                stranger.leave()
            window.sent = stranger.link.bytes

        return self._window(act, attacked=True)

    def _window(self, act: Callable[[Window], None], *, attacked: bool = False) -> Window:
        window = Window()
        self.pids = meter.processes(self._sidecar.pid)
        for pids in self.pids.values():
            meter.start_of_peak(pids)
        before = {role: meter.read(pids) for role, pids in self.pids.items()}
        bystander = _Bystander(self, window)
        begun = time.monotonic_ns()
        act(window)
        if attacked:
            self._settle()
        bystander.end()
        ended = time.monotonic_ns()
        told = self._ask_victim(begun, ended)
        window.seconds, window.worst_ns = (ended - begun) * 1e-9, told["worst_ns"]
        if told["broken"]:
            window.unanswered["the stream beside it"] = told["broken"]
        for role, pids in self.pids.items():
            after = meter.read(pids)
            usual = self._usual(role) * window.seconds if attacked else 0.0
            spent = max(0, after.cpu_ns - before[role].cpu_ns - int(usual))
            window.costs[role] = Cost(spent, after.peak - before[role].rss, after.descriptors)
        if meter.processes(self._sidecar.pid) != self.pids:
            window.died = "a process died or was started anew: " + "".join(self.log[-3:])
        return window

    def _settle(self) -> None:
        """Until what the attack left behind is worked off: no process is busy any more."""
        deadline = time.monotonic() + _SETTLE_LIMIT_S
        pids = [pid for of_role in self.pids.values() for pid in of_role]
        while time.monotonic() < deadline:
            before = meter.read(pids).cpu_ns
            time.sleep(_SETTLED_S)
            if (meter.read(pids).cpu_ns - before) * 1e-9 < 0.35 * _SETTLED_S:
                return

    def _ask_victim(self, begin: int, end: int) -> dict[str, Any]:
        assert self.victim.stdin is not None
        assert self.victim.stdout is not None
        self.victim.stdin.write(f"{begin} {end}\n")
        self.victim.stdin.flush()
        told: dict[str, Any] = json.loads(self.victim.stdout.readline())
        return told

    def _ask(self, name: str) -> Reply:
        at, data = ASKED[name]
        stranger = self.stranger(at)
        try:
            return stranger.connect().send(data).replies(1, _BYSTANDER_S)[0]
        finally:
            stranger.leave()

    def close(self) -> None:
        for process in (self.victim, self._sidecar, self._upstream):
            if process is self._sidecar:
                process.terminate()
            else:
                process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            if process.poll() is None:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


class _Bystander:
    """Asks what everybody else may want, over and over, until the end of the window."""

    def __init__(self, place: Place, window: Window) -> None:
        self._place = place
        self._window = window
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        begun, rounds = time.monotonic(), 0.5
        while not self._over.wait(max(0.0, begun + rounds * _ASKS_EVERY_S - time.monotonic())):
            rounds += 1
            for name in ASKED:
                reply = self._place._ask(name)
                if reply.status != 200:
                    told = "closed, or no answer in time" if reply == CLOSED else str(reply.status)
                    self._window.unanswered.setdefault(name, told)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def _spawn(*arguments: str, prefix: tuple[str, ...] = (), errors: bool = False) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFILLWATCH_")}
    return subprocess.Popen(
        [*prefix, sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if not errors else subprocess.DEVNULL,
        stderr=subprocess.PIPE if errors else None,
        env={**kept, "PYTHONUNBUFFERED": "1"},
        cwd=ROOT,
        text=True,
        start_new_session=True,
    )


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()
