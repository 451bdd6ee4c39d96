"""The proxies that are compared, each started in front of the same upstream."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import procstat
from tests.bench.programs import ROOT, BenchError, need, program

PROXY_CORE, LOAD_CORE = 0, 1
START_LIMIT_SECONDS = 120.0
ROUTER_VENV = Path(os.environ.get("PWTEST_BENCH_VENV", ROOT / ".venv-bench"))
MAX_CONNECTIONS = 9900  # of 20,000 descriptors; nginx drops those that wait once fifteen sixteenths are taken
MOST_STREAMS = 9000  # of one process of a proxy, for the same reason


@dataclass
class Side:
    """A running proxy. `parts` gives the processes of each figure that is reported for it, by name."""

    name: str
    port: int
    upstream_port: int
    process: subprocess.Popen[bytes] | None = None
    admin: str | None = None
    parts: dict[str, list[int]] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def main_pids(self) -> list[int]:
        return next(iter(self.parts.values()), [])

    def stop(self) -> None:
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def spawn(command: Sequence[str], core: int, log: Path, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )


def await_port(side: str, process: subprocess.Popen[bytes], port: int, log: Path, path: str = "/v1/models") -> None:
    """Wait until a request through the proxy is answered with 200."""
    deadline = time.monotonic() + START_LIMIT_SECONDS
    while True:
        if answers(port, path):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            tail = log.read_text(errors="replace")[-2000:]
            raise BenchError(f"{side} did not start (exit code {process.poll()}):\n{tail}")
        time.sleep(0.1)


def answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as answer:
            answer.read()
            return True
    except OSError:
        return False


def start_upstream(directory: Path) -> Side:
    port, log = free_port(), directory / "upstream.log"
    process = spawn([program("upstream"), str(port)], LOAD_CORE, log)
    await_port("upstream", process, port, log)
    return Side("upstream", port, port, process)


def start_direct(upstream: int, directory: Path) -> Side:
    return Side("direct", upstream, upstream)


def start_floor(upstream: int, directory: Path) -> Side:
    port, log = free_port(), directory / "floor.log"
    process = spawn([program("floor"), str(port), str(upstream)], PROXY_CORE, log)
    await_port("floor", process, port, log)
    return Side("floor", port, upstream, process, parts={"floor": [process.pid]})


NGINX = """
daemon off;
worker_processes {workers};
worker_rlimit_nofile 20000;
pid {dir}/nginx.pid;
error_log {dir}/nginx-error.log;
events {{ worker_connections {connections}; }}
http {{
    access_log off;
    client_body_temp_path {dir}; proxy_temp_path {dir};
    fastcgi_temp_path {dir}; uwsgi_temp_path {dir}; scgi_temp_path {dir};
    upstream vllm {{ server 127.0.0.1:{upstream}; keepalive 512; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096{shared};
        location / {{
            proxy_pass http://vllm;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 1h;
        }}
    }}
}}
"""


def start_nginx(upstream: int, directory: Path, workers: int = 1) -> Side:
    port, log, config = free_port(), directory / "nginx.log", directory / "nginx.conf"
    counts = {"connections": 2 * MAX_CONNECTIONS, "workers": workers, "shared": " reuseport" if workers > 1 else ""}
    config.write_text(NGINX.format(dir=directory, port=port, upstream=upstream, **counts))
    directory.chmod(0o755)
    nginx = need("nginx", "apt-get install nginx")
    process = spawn([nginx, "-p", str(directory), "-c", str(config)], PROXY_CORE, log)
    await_port("nginx", process, port, log)
    return Side("nginx", port, upstream, process, parts={"nginx": procstat.with_descendants(process.pid)})


HAPROXY = """
global
    nbthread 1
    maxconn {connections}
defaults
    mode http
    option http-no-delay
    timeout connect 5s
    timeout client 1h
    timeout server 1h
frontend data
    bind 127.0.0.1:{port} backlog 4096
    default_backend vllm
backend vllm
    server vllm 127.0.0.1:{upstream}
"""


def start_haproxy(upstream: int, directory: Path) -> Side:
    port, log, config = free_port(), directory / "haproxy.log", directory / "haproxy.cfg"
    config.write_text(HAPROXY.format(port=port, upstream=upstream, connections=MAX_CONNECTIONS))
    process = spawn([need("haproxy", "apt-get install haproxy"), "-db", "-f", str(config)], PROXY_CORE, log)
    await_port("haproxy", process, port, log)
    return Side("haproxy", port, upstream, process, parts={"haproxy": procstat.with_descendants(process.pid)})


def start_router(upstream: int, directory: Path) -> Side:
    command = ROUTER_VENV / "bin" / "vllm-router"
    if not command.exists():
        remedy = f"python3 -m venv {ROUTER_VENV} && {ROUTER_VENV}/bin/pip install vllm-router"
        raise BenchError(f"vllm-router is not installed; get it with: {remedy}")
    port, log = free_port(), directory / "vllm-router.log"
    flags = [f"--port={port}", "--host=127.0.0.1", "--policy=round_robin", f"--prometheus-port={free_port()}"]
    flags += ["--prometheus-host=127.0.0.1", "--log-level=error", "--worker-urls", f"http://127.0.0.1:{upstream}"]
    process = spawn([str(command), *flags], PROXY_CORE, log)
    await_port("vllm-router", process, port, log)
    return Side("vllm-router", port, upstream, process, parts={"vllm-router": procstat.with_descendants(process.pid)})


def start_prefillwatch(
    upstream: int, directory: Path, workers: int = 1, name: str = "prefillwatch", checkout: Path = ROOT
) -> Side:
    """Our own, of this checkout or of another one."""
    port, admin_port, log = free_port(), free_port(), directory / f"{name}.log"
    command = [sys.executable, "-m", "prefillwatch", "serve", f"--upstream=http://127.0.0.1:{upstream}"]
    command += [f"--listen=127.0.0.1:{port}", f"--admin=127.0.0.1:{admin_port}", f"--relays={workers}"]
    env = os.environ | {"PYTHONPATH": str(checkout / "exporter")}
    process = spawn(command, PROXY_CORE, log, env)
    await_port(name, process, port, log)
    await_port(name, process, admin_port, log, "/readyz")
    admin = f"http://127.0.0.1:{admin_port}"
    relays, others = prefillwatch_processes(admin, process.pid)
    # The relay takes a proxy's place; the observer stands aside, as it would on any machine with a second core. There
    # the load goes before it, and it before all that has nothing to do with us.
    for pid in others:
        procstat.pin(pid, LOAD_CORE)
        procstat.go_first(pid, priority=1)
    parts = {f"{name} relay": relays, f"{name} relay + observer": relays + others}
    return Side(name, port, upstream, process, admin, parts)


def prefillwatch_processes(admin: str, supervisor: int) -> tuple[list[int], list[int]]:
    """(relays, everything else of ours), as the admin API tells it."""
    with urllib.request.urlopen(f"{admin}/api/state", timeout=5) as answer:
        processes = json.load(answer)["processes"]
    relays = [each["pid"] for each in processes if each["role"].startswith("relay")]
    if not relays:
        raise BenchError(f"prefillwatch names no relay among its processes: {processes}")
    return relays, sorted(set(procstat.with_descendants(supervisor)) - set(relays))


STARTERS: dict[str, Callable[..., Side]] = {
    "direct": start_direct,
    "floor": start_floor,
    "nginx": start_nginx,
    "haproxy": start_haproxy,
    "vllm-router": start_router,
    "prefillwatch": start_prefillwatch,
}


#: Our own as it was before a change: see `compare_with`.
BEFORE = "before"


def compare_with(checkout: Path) -> None:
    """Make another checkout of ours a side of its own, to be measured beside this one."""
    if not (checkout / "exporter" / "prefillwatch").is_dir():
        raise BenchError(
            f"{checkout} is no checkout of prefillwatch; make one with: git worktree add {checkout} COMMIT"
        )
    STARTERS[BEFORE] = functools.partial(start_prefillwatch, name=BEFORE, checkout=checkout)


@contextlib.contextmanager
def running(names: Sequence[str], workers: int = 1) -> Iterator[list[Side]]:
    """All sides of `names` in front of one upstream, until the block ends.

    With more ``workers`` than one, which only nginx and ours can be asked for, they all share the proxy's core.
    """
    options = {"workers": workers} if workers > 1 else {}
    with tempfile.TemporaryDirectory(prefix="bench-") as made, contextlib.ExitStack() as stack:
        directory = Path(made)
        upstream = start_upstream(directory)
        stack.callback(upstream.stop)
        procstat.go_first(upstream.pid)
        sides = []
        for name in names:
            side = STARTERS[name](upstream.port, directory, **options)
            stack.callback(side.stop)
            for pid in side.main_pids():
                procstat.go_first(pid)
            sides.append(side)
        yield sides
